"""The store that keeps clients' states in a folder, in a few files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import count, islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from fedblade.core.errors import CorruptFile
from fedblade.core.files import cannot_write
from fedblade.core.old_states import convert_old_states
from fedblade.core.state import flatten, unflatten
from fedblade.core.state_bytes import TreesOfOneLayout, trees_by_layout
from fedblade.core.state_file import (
    UNFINISHED,
    StateFile,
    StoredState,
    read_state_file,
    read_states,
    state_file_name,
)
from fedblade.core.state_folder import PUT_BACK, remove_files, same_file, state_files
from fedblade.core.state_index import StateIndex
from fedblade.core.state_writer import StateFileWriter
from fedblade.core.tree import State

T = TypeVar("T")

_THREADS = 4
_AT_A_TIME = 64
_LARGE = 2**20
"""Bytes of a state from which on threads encode and read faster than one thread."""


class DiskStore:
    """Client states on disk, in state files: see `state_file`.

    States are written to one file in the order in which they come; `flush` finishes the file, so that it is there
    after a power cut, and the next state begins another one. Memory holds a few numbers for each client, and the
    states of one group. `put_all` writes in the background, because hashing and writing can overlap with training; the
    next `put_all` waits until everything before is written.

    Several processes can share a folder. Each has its number as `writer`; number 0 alone removes files.
    """

    def __init__(self, folder: Path, writer: int = 0) -> None:
        self._folder, self._writer = folder, writer
        self._is_made = folder.is_dir()
        self._index: StateIndex | None = None
        self._current: StateFileWriter | None = None
        self._has_begun = False
        self._pool: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None
        self._being_written: frozenset[int] = frozenset()
        self._failed: Exception | None = None
        self._unused: list[Path] = []
        self._unused_from = 0

    def get(self, client: int, before_round: int) -> State | None:
        """The newest state saved before `before_round`."""
        return self.get_all([client], before_round)[0]

    def get_all(self, clients: Sequence[int], before_round: int) -> list[State | None]:
        """The newest states of many clients."""
        if not self._being_written.isdisjoint(clients):
            self._wait()
        stored = self._find(clients, before_round)
        known = [state for state in stored if state is not None]
        if sum(state.length for state in known) < _LARGE * len(known):
            trees = iter(read_states(known))
        else:
            trees = (tree for (tree,) in self._threads().map(lambda state: read_states([state]), known))
        return [None if state is None else unflatten(next(trees)) for state in stored]

    def put(self, client: int, round_: int, state: State) -> None:
        """Write a state."""
        self._wait()
        self._write(self._begin(round_), round_, list(trees_by_layout({client: flatten(state)})))

    def put_all(self, round_: int, states: Mapping[int, State]) -> None:
        """Write states in the background. Tensors of a GPU are copied before this returns."""
        self._wait()
        current = self._begin(round_)
        groups = list(trees_by_layout({client: flatten(state) for client, state in states.items()}))
        self._being_written = frozenset(states)
        self._writing = self._threads().submit(self._write, current, round_, groups)

    def flush(self) -> None:
        """Finish the file that is being written, so that its states are on the disk.

        A state that was not written is not forgotten: every later call raises the error, so no checkpoint is saved.
        """
        self._wait()
        if self._current is None:
            return
        index, current = self._open(), self._current
        try:
            index.replace_by(current.rows())
            for states in _parts(index.worn(), _AT_A_TIME):
                current.append([stored.encoded() for stored in states])
            index.add(current.finish())
        except Exception as error:
            self._fail(error)
            raise
        self._current = None

    def contents(self, round_: int) -> dict[str, str]:
        """The files that a checkpoint of this round needs, each with a digest that covers all its states."""
        self.flush()
        return self._open().contents(round_)

    def check(self, round_: int, contents: Mapping[str, str]) -> None:
        """Go on from the checkpoint of `round_` with exactly these files, as `contents` gave them.

        A file that is missing, damaged or another one than the checkpoint was saved with raises `CorruptFile`.
        """
        files = [
            same_file(self._folder / name, digest, f"the checkpoint of round {round_}")
            for name, digest in contents.items()
        ]
        self._index = StateIndex(files)
        self._index.begin_at(round_)
        self._unused = [path for path in state_files(self._folder) if path.name not in contents]
        self._unused_from = round_
        if self._writer == 0:
            remove_files(self._folder.glob(f"*{UNFINISHED}"))

    def add_files(self, contents: Mapping[str, str]) -> None:
        """Take in the files, with their digests, that other processes have finished in the same folder."""
        index = self._open()
        try:
            for name, digest in sorted(contents.items()):
                if not index.has_all_of(name):
                    index.add(self._file_of_others(name, digest))
        except Exception as error:
            # A later call must not take an older state for the newest.
            self._fail(error)
            raise

    def _file_of_others(self, name: str, digest: str) -> StateFile:
        try:
            return same_file(self._folder / name, digest, "another process of the run")
        except CorruptFile as error:
            raise CorruptFile(f"{error}. {PUT_BACK}") from error

    def forget_before(self, round_: int) -> None:
        """Remove the files that only checkpoints before `round_` need."""
        index = self._open()
        gone = index.forget_before(round_)
        if self._unused and round_ >= self._unused_from:
            # The run may have written a file of the same name meanwhile.
            gone += [path for path in self._unused if not index.knows(path.name)]
            self._unused = []
        if self._writer == 0:
            remove_files(gone)

    def _open(self) -> StateIndex:
        """The index of the files in the folder, which are read when the store is first used."""
        if self._index is None:
            if self._writer == 0:
                convert_old_states(self._folder)
                remove_files(self._folder.glob(f"*-{self._writer}-*{UNFINISHED}"))
            self._index = StateIndex(read_state_file(path) for path in state_files(self._folder))
        return self._index

    def _find(self, clients: Sequence[int], before_round: int) -> list[StoredState | None]:
        self._refuse_failed()
        finished = self._open().find(np.asarray(clients, dtype=np.int64), before_round)
        if self._current is None:
            return finished
        current = [self._current.newest(client, before_round) for client in clients]
        return [
            new if new is not None and (old is None or new.round >= old.round) else old
            for new, old in zip(current, finished, strict=True)
        ]

    def _begin(self, round_: int) -> StateFileWriter:
        """The file that is being written. The first one tells from which round the run goes on."""
        if self._current is not None:
            return self._current
        index = self._open()
        if not self._has_begun:
            index.begin_at(round_)
            self._has_begun = True
        if not self._is_made:
            try:
                self._folder.mkdir(exist_ok=True)
            except OSError as error:
                raise cannot_write(self._folder, error) from error
            self._is_made = True
        names = (state_file_name(round_, str(self._writer), number) for number in count())
        self._current = StateFileWriter(self._folder, next(name for name in names if not index.knows(name)))
        return self._current

    def _write(self, current: StateFileWriter, round_: int, groups: Sequence[TreesOfOneLayout]) -> None:
        """Append states in their order; large states are encoded by several threads."""
        try:
            for group in groups:
                is_large = group.layout.num_bytes >= _LARGE
                encode_all = self._threads().map if is_large else map
                for positions in _parts(range(len(group.clients)), _THREADS if is_large else _AT_A_TIME):
                    clients = [group.clients[position] for position in positions]
                    encoded = zip(clients, encode_all(group.encoded, positions), strict=True)
                    current.append([(client, round_, *one) for client, one in encoded])
        except Exception as error:
            self._fail(error)
            raise

    def _wait(self) -> None:
        """Wait until everything is written, and raise the error if that failed."""
        if self._writing is not None:
            wait([self._writing])
            self._writing, self._being_written = None, frozenset()
        self._refuse_failed()

    def _refuse_failed(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _fail(self, error: Exception) -> None:
        """Never go on after this error; what was written is removed, so that nothing trusts it."""
        self._failed = error
        if self._current is not None:
            self._current.discard()

    def _threads(self) -> ThreadPoolExecutor:
        # One more than work side by side: the thread that appends waits for those that encode.
        self._pool = self._pool or ThreadPoolExecutor(_THREADS + 1, "client-states")
        return self._pool


def _parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    remaining = iter(items)
    while part := list(islice(remaining, size)):
        yield part
