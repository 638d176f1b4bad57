"""A state file that is being written; see `state_file` for what the file holds."""

import contextlib
import os
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from fedblade.core.errors import CorruptFile
from fedblade.core.files import BINARY, cannot_write, sync_folder
from fedblade.core.state_file import ROUND_BITS, SUFFIX, UNFINISHED, EncodedState, StateFile, StoredState, encode_index

_TAKEN = "Put the run's folder back as it was and go on with --resume, or start a new run elsewhere."

_COLUMNS = 4


class StateFileWriter:
    """A state file that is being written. Every call opens and closes the file, which must be as the last call left it.

    The states that were written can be looked up. Memory holds a few numbers for each of them.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.final, self.path = folder / name, folder / f"{name.removesuffix(SUFFIX)}{UNFINISHED}"
        self._end = 0
        self._rows = array("q")
        """For every row its key, its offset, its length and the row of the same client before it, or -1."""
        self._digests = bytearray()
        self._last: dict[int, int] = {}
        self._write([], os.O_CREAT | os.O_TRUNC)

    def append(self, states: Sequence[EncodedState]) -> None:
        """Write states."""
        offset = self._end
        self._write([content for _, _, content, _ in states])
        for client, round_, content, digest in states:
            row = len(self._rows) // _COLUMNS
            # A signal may come between any two lines: the row counts when it is complete.
            self._digests[32 * row : 32 * row + 32] = bytes.fromhex(digest)
            key = (client << ROUND_BITS) + round_
            self._rows.extend((key, offset, len(content), self._last.get(client, -1)))
            self._last[client] = row
            offset += len(content)

    def newest(self, client: int, before_round: int) -> StoredState | None:
        """The newest state of a client before a round in this file."""
        row, found = self._last.get(client, -1), -1
        while row >= 0:
            key, _, _, earlier = self._row(row)
            is_newer = found < 0 or key > self._row(found)[0]
            if is_newer and key < (client << ROUND_BITS) + before_round:
                found = row
            row = earlier
        if found < 0:
            return None
        key, offset, length, _ = self._row(found)
        digest = self._digests[32 * found : 32 * found + 32].hex()
        return StoredState(self.path, client, key - (client << ROUND_BITS), offset, length, digest)

    def rows(self) -> StateFile:
        """The rows so far, as the file's index will have them: of several states of a client and a round, the last."""
        columns = np.array(self._rows, dtype=np.int64).reshape(-1, _COLUMNS)
        keys = columns[:, 0]
        order = np.lexsort((np.arange(len(keys)), keys))
        order = order[np.append(keys[order][1:] != keys[order][:-1], True)]
        digests = np.frombuffer(bytes(self._digests), dtype="V32")[order]
        return StateFile(self.final, "", keys[order], columns[order, 1], columns[order, 2], digests)

    def finish(self) -> StateFile:
        """Write the index, wait until the file is on the disk, and give the file its name.

        A call that was interrupted can be made again.
        """
        rows = self.rows()
        end, digest = encode_index(rows)
        try:
            if self.path.is_file() or not self.final.is_file():
                self._write([end], sync=True)
                self.path.replace(self.final)
            sync_folder(self.final.parent)
        except OSError as error:
            raise cannot_write(self.final, error) from error
        return StateFile(self.final, digest, rows.keys, rows.offsets, rows.lengths, rows.digests)

    def discard(self) -> None:
        """Remove what was written, as far as that is possible."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _row(self, row: int) -> Sequence[int]:
        return self._rows[_COLUMNS * row : _COLUMNS * (row + 1)]

    def _write(self, contents: Iterable[bytes], flags: int = 0, *, sync: bool = False) -> None:
        """Add bytes at the end. A file or a folder that is gone, or another file in their place, ends the run."""
        end = self._end
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | flags | BINARY, 0o666)
            with os.fdopen(handle, "ab") as file:
                if os.fstat(handle).st_size != end:
                    raise CorruptFile(f"'{self.path}' was changed by another program while the run wrote it. {_TAKEN}")
                for content in contents:
                    end += file.write(content)
                file.flush()
                if sync:
                    os.fsync(handle)
        except FileNotFoundError as error:
            raise CorruptFile(
                f"'{self.path}' was removed or renamed, or its folder was, while the run was writing there. {_TAKEN}"
            ) from error
        except OSError as error:
            raise cannot_write(self.path, error) from error
        except KeyboardInterrupt:
            # The states of a round that was stopped are saved again.
            with contextlib.suppress(OSError):
                os.truncate(self.path, self._end)
            raise
        self._end = end
