"""What a line shows: the points of a group over its seeds, and of a sweep over groups."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from fedblade import protocols
from fedblade.figures._arrays import array_points
from fedblade.figures._points import run_points
from fedblade.figures._specs import Field, find_field
from fedblade.results import Group, RunRecord, number

_ARRAYS = ("classes", "reliability")
"""Drawn from arrays whose mean over seeds is taken before they are put in order."""


@dataclass(frozen=True)
class Series:
    """Points with the range over seeds; a `level` has one value and no place on the horizontal axis."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    level: bool = False


def group_series(group: Group, draw: str, wanted: Field) -> Series | None:
    """The mean over seeds on the points all seeds share, or None when no run has the field."""
    if draw in _ARRAYS:
        return _one_line(array_points(group, draw, wanted.key))
    found = [points for run in group.counted if (points := run_points(run, draw, wanted.key))]
    if not found and wanted.otherwise:
        return group_series(group, draw, find_field(wanted.otherwise))
    shared = sorted(set.intersection(*(set(points) for points in found))) if found else []
    if not shared:
        return None
    columns = [[points[index] for points in found] for index in shared]
    heights = [[y for _, y in column] for column in columns]
    return Series(
        tuple(statistics.fmean(x for x, _ in column) for column in columns),
        tuple(map(statistics.fmean, heights)),
        tuple(map(min, heights)),
        tuple(map(max, heights)),
    )


def sweep_series(groups: Sequence[tuple[float | None, Group]], wanted: Field) -> Series | None:
    """One point per value of the swept setting, or a level for a group that does not have the setting."""
    rows = [(x, values) for x, group in groups if (values := _outcomes(group, wanted.key))]
    placed = sorted((x, values) for x, values in rows if x is not None)
    chosen = [values for _, values in placed] or [values for _, values in rows][:1]
    if not chosen:
        return None
    return Series(
        tuple(x for x, _ in placed),
        tuple(map(statistics.fmean, chosen)),
        tuple(map(min, chosen)),
        tuple(map(max, chosen)),
        level=not placed,
    )


def last_value(group: Group, wanted: Field) -> float | None:
    """Mean over seeds of the field's last value."""
    values = _outcomes(group, wanted.key)
    return statistics.fmean(values) if values else None


def _one_line(points: Sequence[tuple[float, float]]) -> Series | None:
    """Points without a range."""
    x, y = tuple(x for x, _ in points), tuple(y for _, y in points)
    return Series(x, y, y, y) if points else None


def _outcomes(group: Group, key: str) -> list[float]:
    """What the seeds ended with: a field of the summary, or the last value in the history."""
    return [value for run in group.counted if (value := _outcome(run, key)) is not None]


def _outcome(run: RunRecord, key: str) -> float | None:
    match key:
        case "final_accuracy":
            return run.final_accuracy
        case "last10_accuracy":
            return run.ranked_accuracy
        case "last5_accuracy":
            return run.final_accuracy if run.calibrated else protocols.last_mean(run.evaluated(), 5)
    stored = number(run.summary.get(key))
    measured = (r.fields[key] for r in reversed(run.history) if key in r.fields)
    return next(measured, None) if stored is None else stored
