"""Which file holds which state of which client, and which files are not needed any more.

A state is needed by today's run if no newer state of its client is saved. A checkpoint of round N needs the newest
states of rounds before N, from the files that were there when the checkpoint was saved.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from fedblade.core.plan import IntArray
from fedblade.core.state_file import NEVER, ROUND_BITS, StateFile, StoredState, round_of

_MERGED_BELOW = 64 * 2**20
"""Larger files are not put together."""
_MOST_ALIKE = 8
"""So many files whose sizes differ by a factor of eight at most are put together into one."""


class StateIndex:
    """The finished state files of a store, the oldest first."""

    def __init__(self, files: Iterable[StateFile] = ()) -> None:
        self._files: list[StateFile] = []
        for file in files:
            self.add(file)

    def knows(self, name: str) -> bool:
        """Whether a file with this name is one of the store's."""
        return any(file.path.name == name for file in self._files)

    def has_all_of(self, name: str) -> bool:
        """Whether every state of the file with this name is known; `begin_at` may have left some out."""
        return any(file.path.name == name and file.is_whole for file in self._files)

    def add(self, file: StateFile) -> None:
        """Take in a file that was finished after all others."""
        self.replace_by(file)
        self._files.append(file)

    def replace_by(self, file: StateFile) -> None:
        """Note which states are not the newest any more. Of two equal states, the one in `file` is needed."""
        end = int(round_of(file.keys).max()) + 1
        for other in self._files:
            rows = file.needed
            found = other.newest(file.keys[rows] >> ROUND_BITS)
            both = (found >= 0) & (other.until[found] == NEVER)
            rows, found = rows[both], found[both]
            ahead = round_of(file.keys[rows]) - round_of(other.keys[found])
            newer, equal, older = ahead > 0, ahead == 0, ahead < 0
            other.retire(found[newer], round_of(file.keys[rows[newer]]) + 1)
            other.retire(found[equal], end)
            file.retire(rows[older], round_of(other.keys[found[older]]) + 1)

    def begin_at(self, round_: int) -> None:
        """Leave out the states of `round_` and later rounds: a killed process saved them, and they are saved again."""
        kept = [file.select(round_of(file.keys) < round_) for file in self._files]
        self._files = []
        for file in kept:
            if len(file.keys):
                self.add(file)

    def find(self, clients: IntArray, before_round: int) -> list[StoredState | None]:
        """Where the newest states of these clients before a round are."""
        rounds, rows, numbers = (np.full(len(clients), -1) for _ in range(3))
        for number, file in enumerate(self._files):
            found = file.newest(clients, before_round)
            its_rounds = np.where(found >= 0, round_of(file.keys[found]), -1)
            better = (found >= 0) & (its_rounds >= rounds)
            rounds[better], rows[better], numbers[better] = its_rounds[better], found[better], number
        return [
            None if number < 0 else self._files[number].stored(row)
            for number, row in zip(numbers.tolist(), rows.tolist(), strict=True)
        ]

    def contents(self, round_: int) -> dict[str, str]:
        """The files that a checkpoint of this round needs, with the digests of their indexes."""
        return {file.path.name: file.digest for file in self._files if file.is_needed_at(round_)}

    def worn(self) -> Iterator[StoredState]:
        """States to be copied into the file that is being written, so that old files can go.

        They come from files of which less than half is needed, and from small files of which there are many alike.
        """
        files = [file for file in self._files if file.needed_bytes]
        alike = Counter(_size_class(file) for file in files)
        for file in files:
            is_one_of_many = file.needed_bytes < _MERGED_BELOW and alike[_size_class(file)] >= _MOST_ALIKE
            if is_one_of_many or 2 * file.needed_bytes < file.num_bytes:
                yield from (file.stored(row) for row in file.needed.tolist())

    def forget_before(self, round_: int) -> list[Path]:
        """Leave out the files that no checkpoint of `round_` or later needs; returns these files."""
        gone = [file for file in self._files if not file.needed_bytes and int(file.until.max()) <= round_]
        self._files = [file for file in self._files if not any(file is other for other in gone)]
        return [file.path for file in gone]


def _size_class(file: StateFile) -> int:
    """Equal for files of about the same size."""
    return file.needed_bytes.bit_length() // 3
