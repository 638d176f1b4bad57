"""Reads and writes the files of a run folder while the run holds the folder."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedblade.core.files import cannot_write, write_atomic
from fedblade.results._file_names import DIAGNOSTICS, HISTORY, JOURNAL
from fedblade.results._held_folder import HeldFolder
from fedblade.results._journal import KEYS, Journal
from fedblade.results._json_files import add_line, as_line, json_text, parse_object, read_lines
from fedblade.results._recovery import has_lines, recover
from fedblade.results._unreadable import broken_lines, left_out_sentence

_LOG = logging.getLogger("fedblade")
_SET_ASIDE = ".set-aside"
"""The end of the name of a file with the odd lines of another one."""


class FolderFiles:
    """The files of the folder `path`.

    If the folder was opened and then removed, renamed or replaced, the next write raises `FolderLost`, and nothing is
    written elsewhere. `_written` has the digests of the files as this process has left them, whatever happened to them
    since.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: tuple[HeldFolder, ...] = ()
        self._journal: Journal | None = None
        self._written: dict[str, str] = {}

    def check_held(self) -> None:
        """Refuse to go on if the folder, or that of the checkpoints, is no longer the one that was opened."""
        for held in self._held:
            held.check()

    def copy_lines_of(self, run: str, rounds: int) -> None:
        """Copy the lines of the run with the id `run`, which has `rounds` rounds, to the journal from now on."""
        self._journal = Journal(self.path / JOURNAL, run, rounds)

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file atomically; a full disk stops the run and leaves the old file."""
        self.check_held()
        try:
            write_atomic(self.path / name, content)
        except OSError as error:
            raise cannot_write(self.path / name, error) from error
        self._note_written(name, content)

    def write_if_new(self, name: str, content: str) -> bool:
        """Write a text file that does not have this content yet; returns whether it was written."""
        is_new = self.read_text(name) != content
        if is_new:
            self.write(name, content)
        self._note_written(name, content)
        return is_new

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a JSON file; NaN and infinities become null."""
        self.write(name, json_text(value))

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The object in a JSON file, None if there is no such file or it is broken."""
        try:
            return parse_object((self.path / name).read_bytes())
        except OSError:
            return None

    def read_text(self, name: str) -> str | None:
        """The text of a file, None if there is no such file or it is not text."""
        try:
            return (self.path / name).read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            return None

    def append(self, name: str, record: Mapping[str, Any], *, sync: bool = True) -> None:
        """Add one line to a file of lines, and a copy of it to the journal.

        Without `sync` a power cut may lose the line, but the end of the process does not.
        """
        self.append_line(name, record.get(KEYS.get(name, "")), as_line(record), sync=sync)

    def append_line(self, name: str, key: int | None, line: str, *, sync: bool = True) -> None:
        """Add a line that is JSON already. `key` is its round or client, for the journal."""
        self.check_held()
        add_line(self.path / name, line, sync=sync)
        self._written.pop(name, None)
        if self._journal is not None and key is not None:
            self._journal.add(name, key, line)

    def records(self, name: str) -> list[dict[str, Any]]:
        """The objects of a file of lines, in order; broken lines are left out and logged, see `read_lines`."""
        lines = read_lines(self.path / name, by_round=name in (HISTORY, DIAGNOSTICS))
        if lines.broken:
            _LOG.warning(left_out_sentence(broken_lines(lines.broken, f"{self.path}/{name}")))
        return lines.objects

    def history(self) -> list[dict[str, Any]]:
        """The rounds in the history, see `records`."""
        return self.records(HISTORY)

    def rewrite(self, name: str, records: Sequence[Mapping[str, Any]]) -> None:
        """Replace a file of lines, and its copy in the journal."""
        self._replace_lines(name, {record[KEYS[name]]: as_line(record) for record in records})

    def keep_records(self, name: str, records: Sequence[Mapping[str, Any]]) -> bool:
        """Put a file of lines right if it does not hold exactly these records; returns whether it was changed."""
        content = "".join(f"{as_line(record)}\n" for record in records)
        is_changed = (self.read_text(name) or "") != content
        if is_changed:
            self.rewrite(name, records)
        elif records:
            self._note_written(name, content)
        return is_changed

    def is_as_written(self, name: str) -> bool:
        """Whether a file of long lines has exactly the lines that the journal has noted, in this order."""
        return self._journal is None or has_lines(self.path / name, self._journal)

    def rounds_on_record(self) -> int:
        """The number of rounds before the first one that neither the history nor the journal has."""
        return _rounds_in(recover(self.path / HISTORY, self._journal).lines)

    def rounds_of_this_run(self) -> int:
        """The number of rounds that the journal confirms; without a journal of this run, all `rounds_on_record`."""
        if self._journal is None or not self._journal.is_of_this_run:
            return self.rounds_on_record()
        return _rounds_in(self._journal.contents(HISTORY))

    def recover(self, name: str, last: int | None = None) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
        """Mend a file of lines; returns its records, and sentences on what was odd."""
        notes = self.mend(name, last)
        return self.records(name), notes

    def mend(self, name: str, last: int | None = None) -> tuple[str, ...]:
        """Make a file of lines what it was up to the round `last`, as far as the journal knows.

        Later lines are removed. Odd lines are kept in a file beside it. Returns sentences on what was odd.
        """
        found = recover(self.path / name, self._journal, last)
        if found.odd:
            aside = self.path / f"{name}{_SET_ASIDE}"
            for line in found.odd:
                add_line(aside, line.decode(errors="backslashreplace"))
        self._replace_lines(name, found.lines)
        kept = f" Odd lines are kept in '{name}{_SET_ASIDE}'." if found.odd else ""
        return tuple(f"{note}.{kept}" for note in found.notes)

    def take_lines(self, name: str, folder: Path, last: int) -> None:
        """Take over a file of lines from another folder up to the round `last`, as far as the journal there mends it.

        That folder is of the same run.
        """
        journal = None if self._journal is None else self._journal.at(folder / JOURNAL)
        self._replace_lines(name, recover(folder / name, journal, last).lines)

    def _replace_lines(self, name: str, lines: Mapping[int, str]) -> None:
        """Make `lines`, by round or client, the whole of a file; an absent file stays absent if there are none."""
        content = "".join(f"{line}\n" for line in lines.values())
        path = self.path / name
        if (path.exists() or lines) and (not path.is_file() or path.read_bytes() != content.encode()):
            self.write(name, content)
        elif lines:
            self._note_written(name, content)
        if self._journal is not None:
            self._journal.replace(name, lines)

    def _note_written(self, name: str, content: str | bytes) -> None:
        self._written[name] = hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def _rounds_in(lines: Mapping[int, str]) -> int:
    """The number of rounds before the first one that is missing."""
    return next(count for count in range(len(lines) + 1) if count + 1 not in lines)
