"""State files: the states of many clients in one file, with an index at its end.

A state file has the states one after another, each as the bytes of a safetensors file. Then comes the index: a JSON
object with a list for each column. The last bytes say how long the index is and have its SHA-256, so that a file which
was cut short is noticed. While the states are written the file is called `….states.tmp`.
"""

import hashlib
import json
import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fedblade.core.errors import CorruptFile
from fedblade.core.plan import IntArray
from fedblade.core.state_bytes import decode_group
from fedblade.core.tensorfile import decode_tensors
from fedblade.core.tree import Tree

NOT_REBUILT = "It cannot be rebuilt; put an undamaged copy of the file back, or start the run again elsewhere."
SUFFIX, UNFINISHED = ".states", ".states.tmp"
NEVER = np.iinfo(np.int64).max
Digests: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.void]]"
BoolArray: TypeAlias = npt.NDArray[np.bool_]
_NAME = re.compile(r"(\d{6,})-(\w+)-(\d+)\.states")
_END = struct.Struct("<Q32s8s")
_MARK = b"fbstates"
_VERSION = 1
ROUND_BITS = 31
_MAX_ROUND = 2**ROUND_BITS - 1
"""A client and a round are sorted and looked up as one whole number."""


def state_file_name(round_: int, writer: str, number: int) -> str:
    """The name of a writer's state file whose first state was saved after `round_`."""
    return f"{round_:06d}-{writer}-{number}{SUFFIX}"


def name_order(path: Path) -> tuple[int, int, str] | None:
    """Sorts state files by the time when they were begun; None for every other file."""
    match = _NAME.fullmatch(path.name)
    return None if match is None else (int(match[1]), int(match[3]), match[2])


EncodedState: TypeAlias = tuple[int, int, bytes, str]
"""A client, a round, and the bytes of a state with their digest."""


@dataclass(frozen=True)
class StoredState:
    """Where the state of a client is: a part of a file, with the digest that its tensors must have."""

    path: Path
    client: int
    round: int
    offset: int
    length: int
    digest: str

    def encoded(self) -> EncodedState:
        """The state as it is in the file, checked."""
        (content,) = _contents([self])
        self.decode(content)
        return self.client, self.round, content, self.digest

    def decode(self, content: bytes) -> Tree:
        """The tensors in these bytes of the file."""
        try:
            tensors, digest = decode_tensors(content, f"its part of '{self.path}'")
            if digest != self.digest:
                raise CorruptFile(f"'{self.path}' holds another state than its index says")
        except CorruptFile as error:
            raise CorruptFile(f"the state of client {self.client} is lost: {error}. {NOT_REBUILT}") from error
        return tensors


def read_states(states: Sequence[StoredState]) -> list[Tree]:
    """The tensors of states, all checked."""
    if not states:
        return []
    contents = _contents(states)
    first = states[0].decode(contents[0])
    others = decode_group(contents[1:], [state.digest for state in states[1:]], first)
    rest = zip(states[1:], contents[1:], others, strict=True)
    return [first, *(state.decode(content) if tree is None else tree for state, content, tree in rest)]


def _contents(states: Sequence[StoredState]) -> list[bytes]:
    """The bytes of states. Files are open for this call only, because Windows removes no open file."""
    contents = [b""] * len(states)
    by_path: dict[Path, list[int]] = {}
    for number, state in enumerate(states):
        by_path.setdefault(state.path, []).append(number)
    for path, numbers in by_path.items():
        try:
            with path.open("rb") as file:
                for number in numbers:
                    file.seek(states[number].offset)
                    contents[number] = file.read(states[number].length)
        except OSError as error:
            raise CorruptFile(
                f"the state of client {states[numbers[0]].client} is lost: '{path}' cannot be read "
                f"({error.strerror or error}). {NOT_REBUILT}"
            ) from error
    return contents


class StateFile:
    """The index of a state file: a row for each state, sorted by client and round.

    `keys` holds client and round of every row. `until` is the round of the first checkpoint that does not need the
    row any more; a row whose state is the newest of its client has `NEVER`, and `needed_bytes` adds these rows up.
    """

    def __init__(
        self, path: Path, digest: str, keys: IntArray, offsets: IntArray, lengths: IntArray, digests: Digests
    ) -> None:
        self.path, self.digest = path, digest
        self.keys, self.offsets, self.lengths, self.digests = keys, offsets, lengths, digests
        self.is_whole = True
        self.until = np.full(len(keys), NEVER)
        self.num_bytes = self.needed_bytes = int(lengths.sum())
        followed = np.flatnonzero(keys[:-1] >> ROUND_BITS == keys[1:] >> ROUND_BITS)
        self.retire(followed, round_of(keys[followed + 1]) + 1)

    def retire(self, rows: IntArray, until: IntArray | int) -> None:
        """Note that checkpoints from round `until` on do not need these rows."""
        self.until[rows] = until
        self.needed_bytes -= int(self.lengths[rows].sum())

    @property
    def needed(self) -> IntArray:
        """The rows with the newest state of a client."""
        return np.flatnonzero(self.until == NEVER)

    def is_needed_at(self, round_: int) -> bool:
        """Whether a checkpoint of this round needs a state of the file."""
        return bool(((round_of(self.keys) < round_) & (self.until > round_)).any())

    def newest(self, clients: IntArray, before_round: int = _MAX_ROUND) -> IntArray:
        """For every client the row of its newest state before a round, or -1."""
        rows = np.searchsorted(self.keys, (clients << ROUND_BITS) + min(before_round, _MAX_ROUND)) - 1
        is_found = (rows >= 0) & (self.keys[rows] >> ROUND_BITS == clients)
        return np.where(is_found, rows, -1)

    def select(self, rows: BoolArray) -> "StateFile":
        """The index with some rows only."""
        keys, offsets, lengths = self.keys[rows], self.offsets[rows], self.lengths[rows]
        selected = StateFile(self.path, self.digest, keys, offsets, lengths, self.digests[rows])
        selected.is_whole = len(keys) == len(self.keys)
        return selected

    def stored(self, row: int) -> StoredState:
        """Where the state of a row is."""
        key, digest = int(self.keys[row]), self.digests[row].tobytes().hex()
        offset, length = int(self.offsets[row]), int(self.lengths[row])
        return StoredState(self.path, key >> ROUND_BITS, key & _MAX_ROUND, offset, length, digest)


def round_of(keys: IntArray) -> IntArray:
    """The rounds in keys."""
    rounds: IntArray = keys & _MAX_ROUND
    return rounds


def read_state_file(path: Path) -> StateFile:
    """The index of a state file; an incomplete or changed index raises `CorruptFile`."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _END.size))
            length, digest, mark = _END.unpack(file.read(_END.size))
            if mark != _MARK or length + _END.size > size:
                raise ValueError("it has no end")
            file.seek(size - _END.size - length)
            index = file.read(length)
        if hashlib.sha256(index).digest() != digest:
            raise ValueError("its index does not match its digest")
        columns = json.loads(index)
        if columns["version"] != _VERSION:
            raise ValueError("another version of fedblade has written it")
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise CorruptFile(f"'{path}' is no whole file of client states ({error})") from error
    if not columns["clients"]:
        raise CorruptFile(f"'{path}' holds no state. {NOT_REBUILT}")
    clients, rounds = (np.asarray(columns[name], dtype=np.int64) for name in ("clients", "rounds"))
    offsets, lengths = (np.asarray(columns[name], dtype=np.int64) for name in ("offsets", "lengths"))
    digests = np.frombuffer(bytes.fromhex(columns["digests"]), dtype="V32")
    return StateFile(path, digest.hex(), (clients << ROUND_BITS) + rounds, offsets, lengths, digests)


def encode_index(rows: StateFile) -> tuple[bytes, str]:
    """The last bytes of a state file with these rows, and the digest of its index."""
    columns = {
        "version": _VERSION,
        "clients": (rows.keys >> ROUND_BITS).tolist(),
        "rounds": round_of(rows.keys).tolist(),
        "offsets": rows.offsets.tolist(),
        "lengths": rows.lengths.tolist(),
        "digests": rows.digests.tobytes().hex(),
    }
    index = json.dumps(columns).encode()
    digest = hashlib.sha256(index)
    return index + _END.pack(len(index), digest.digest(), _MARK), digest.hexdigest()
