"""The arrays in `diagnostics.jsonl`: checked, averaged over seeds, and thinned to the rounds that a page can show."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedblade.results._groups import Group
from fedblade.results._record import finite_number

Vector = tuple[float | None, ...]

_MOST_ROUNDS = 20


@dataclass(frozen=True)
class Snapshots:
    """An array over rounds: `values[group][i]` is the group's latest array at or before round `rounds[i]`."""

    rounds: tuple[int, ...]
    values: tuple[tuple[Vector | None, ...], ...]

    @property
    def last(self) -> tuple[Vector | None, ...]:
        """The latest array of every group."""
        return tuple(by_round[-1] for by_round in self.values)


@dataclass(frozen=True)
class StoredArray:
    """The name of an array in the diagnostics of a round, and how its numbers are read.

    `within` is the name of the object that holds the array, if there is one. `check` gives all numbers of the array in
    one tuple, or None when the stored value has another form.
    """

    name: str
    check: Callable[[object], Vector | None]
    within: str | None = None

    def stored(self, diagnostics: Mapping[str, Any]) -> object:
        """The value in the file, None where there is none."""
        holder = diagnostics if self.within is None else diagnostics.get(self.within)
        return holder.get(self.name) if isinstance(holder, Mapping) else None

    def read(self, diagnostics: Mapping[str, Any]) -> Vector | None:
        """The numbers of the array, None where there are none."""
        return self.check(self.stored(diagnostics))


def snapshots(
    groups: Sequence[Group], array: StoredArray, *, most: int = _MOST_ROUNDS, rounds: Sequence[int] | None = None
) -> Snapshots | None:
    """The array over the given `rounds`, or None where no run has it.

    Without `rounds`, up to `most` rounds are chosen evenly. Only these are read, because the diagnostics of a long run
    hold many more.
    """
    stored = [_rounds(group, array) for group in groups]
    shown = tuple(evenly(sorted(set().union(*stored)), most) if rounds is None else rounds)
    values = tuple(_values(group, array, known, shown) for group, known in zip(groups, stored, strict=True))
    return Snapshots(shown, values) if any(numbers is not None for by_round in values for numbers in by_round) else None


def array_length(groups: Sequence[Group], array: StoredArray) -> int | None:
    """The length of the array, for a matrix the number of its rows; None where stored arrays differ in length."""
    values = (array.stored(stored) for group in groups for run in group.counted for stored in run.diagnostics.values())
    lengths = {len(value) for value in values if isinstance(value, list) and value}
    return lengths.pop() if len(lengths) == 1 else None


def number_list(stored: object) -> Vector | None:
    """The numbers of a list, with None for numbers that are not finite; None for anything but a list of numbers."""
    if not isinstance(stored, list) or not stored:
        return None
    values = tuple(finite_number(value) for value in stored)
    return None if all(value is None for value in values) else values


def complete_list(stored: object) -> Vector | None:
    """The numbers of a list in which all are finite; None for anything else."""
    values = number_list(stored)
    return None if values is None or None in values else values


def square_matrix(stored: object) -> Vector | None:
    """The numbers of a square matrix, row after row; None for anything else."""
    if not isinstance(stored, list) or any(not isinstance(row, list) or len(row) != len(stored) for row in stored):
        return None
    return number_list([value for row in stored for value in row])


def evenly(values: Sequence[int], most: int) -> list[int]:
    """At most `most` of the values, evenly chosen; the last value is always among them."""
    count = len(values)
    if count <= most:
        return list(values)
    if most == 1:
        return [values[-1]]
    return [values[index] for index in sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})]


def _rounds(group: Group, array: StoredArray) -> set[int]:
    """The rounds in which all runs with this array have it."""
    per_run = [{round_ for round_, stored in run.diagnostics.items() if array.stored(stored)} for run in group.counted]
    per_run = [rounds for rounds in per_run if rounds]
    return set.intersection(*per_run) if per_run else set()


def _values(group: Group, array: StoredArray, known: Iterable[int], shown: Sequence[int]) -> tuple[Vector | None, ...]:
    """The mean over seeds at every shown round, or at the last round before it whose arrays can be read."""
    mean = functools.cache(lambda round_: _mean(group, array, round_))
    latest_first = sorted(known, reverse=True)
    candidates = ((mean(round_) for round_ in latest_first if round_ <= last) for last in shown)
    return tuple(next((numbers for numbers in means if numbers is not None), None) for means in candidates)


def _mean(group: Group, array: StoredArray, round_: int) -> Vector | None:
    """The mean over seeds in one round; None where an array cannot be read, or arrays differ in length."""
    stored = [run.diagnostics[round_] for run in group.counted if round_ in run.diagnostics]
    read = [array.read(arrays) for arrays in stored if array.stored(arrays)]
    readable = [numbers for numbers in read if numbers is not None]
    if not readable or len(readable) < len(read) or len({len(numbers) for numbers in readable}) > 1:
        return None
    if len(readable) == 1:
        return readable[0]
    columns = ([value for value in column if value is not None] for column in zip(*readable, strict=True))
    return tuple(sum(finite) / len(finite) if finite else None for finite in columns)
