"""Arrays that diagnostics left: checked, averaged over seeds, and thinned to the rounds a page can show."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedblade.results._groups import Group
from fedblade.results._record import number

Vector = tuple[float | None, ...]

_MOST_ROUNDS = 20


@dataclass(frozen=True)
class Snapshots:
    """One array per group and shown round, `values[group][shown]`: the latest of that round or of one before it."""

    rounds: tuple[int, ...]
    values: tuple[tuple[Vector | None, ...], ...]

    @property
    def last(self) -> tuple[Vector | None, ...]:
        """Each group's latest array."""
        return tuple(found[-1] for found in self.values)


@dataclass(frozen=True)
class Array:
    """Where an array lies in the diagnostics of a round, and how its numbers are read.

    `within` names the value it is part of; `check` gives its numbers in a row, or None when it is not as expected.
    """

    name: str
    check: Callable[[object], Vector | None]
    within: str | None = None

    def stored(self, diagnostics: Mapping[str, Any]) -> object:
        """The stored value, None where there is none."""
        holder = diagnostics if self.within is None else diagnostics.get(self.within)
        return holder.get(self.name) if isinstance(holder, Mapping) else None

    def read(self, diagnostics: Mapping[str, Any]) -> Vector | None:
        """Its numbers, or None when there are none."""
        return self.check(self.stored(diagnostics))


def snapshots(
    groups: Sequence[Group], array: Array, *, most: int = _MOST_ROUNDS, rounds: Sequence[int] | None = None
) -> Snapshots | None:
    """The array over rounds, or None where no run has it.

    Shown are the given `rounds`, by default up to `most` evenly chosen ones. Only these are read: the diagnostics of a
    long run hold many more.
    """
    known = [_rounds(group, array) for group in groups]
    shown = tuple(evenly(sorted(set().union(*known)), most) if rounds is None else rounds)
    values = tuple(_values(group, array, at, shown) for group, at in zip(groups, known, strict=True))
    return Snapshots(shown, values) if any(each is not None for found in values for each in found) else None


def side_of(groups: Sequence[Group], array: Array) -> int | None:
    """The length all stored values of this array agree on, the side of a square one."""
    found = (array.stored(stored) for group in groups for run in group.counted for stored in run.diagnostics.values())
    lengths = {len(value) for value in found if isinstance(value, list) and value}
    return lengths.pop() if len(lengths) == 1 else None


def vector(stored: object) -> Vector | None:
    """A list of numbers, each None where it is not finite; None for anything else."""
    if not isinstance(stored, list) or not stored:
        return None
    values = tuple(number(value) for value in stored)
    return None if all(value is None for value in values) else values


def complete(stored: object) -> Vector | None:
    """A list in which no number is missing; None for anything else."""
    values = vector(stored)
    return None if values is None or None in values else values


def square(stored: object) -> Vector | None:
    """A square matrix, row after row; None for anything else."""
    if not isinstance(stored, list) or any(not isinstance(row, list) or len(row) != len(stored) for row in stored):
        return None
    return vector([value for row in stored for value in row])


def evenly(values: Sequence[int], most: int) -> list[int]:
    """At most `most` of the values, evenly chosen; the last one stays."""
    count = len(values)
    if count <= most:
        return list(values)
    if most == 1:
        return [values[-1]]
    return [values[at] for at in sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})]


def _rounds(group: Group, array: Array) -> set[int]:
    """The rounds at which every run that has the array has it."""
    per_run = [{at for at, stored in run.diagnostics.items() if array.stored(stored)} for run in group.counted]
    per_run = [rounds for rounds in per_run if rounds]
    return set.intersection(*per_run) if per_run else set()


def _values(group: Group, array: Array, known: Iterable[int], shown: Sequence[int]) -> tuple[Vector | None, ...]:
    """The mean over seeds at each shown round, or at the last one before it that can be read."""
    mean = functools.cache(lambda at: _mean(group, array, at))
    latest_first = sorted(known, reverse=True)
    return tuple(
        next((found for at in latest_first if at <= each and (found := mean(at)) is not None), None) for each in shown
    )


def _mean(group: Group, array: Array, at: int) -> Vector | None:
    """The mean over seeds, None where one has no numbers or another number of them."""
    held = [run.diagnostics[at] for run in group.counted if at in run.diagnostics]
    found = [array.read(stored) for stored in held if array.stored(stored)]
    present = [values for values in found if values is not None]
    if not present or len(present) < len(found) or len({len(values) for values in present}) > 1:
        return None
    if len(present) == 1:
        return present[0]
    columns = ([value for value in column if value is not None] for column in zip(*present, strict=True))
    return tuple(sum(known) / len(known) if known else None for known in columns)
