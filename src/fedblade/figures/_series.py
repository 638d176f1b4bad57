"""Numbers of runs as points to draw: one run, a group over its seeds, and a sweep over groups."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedblade import protocols
from fedblade.figures._specs import Field, find_field
from fedblade.report._groups import Group
from fedblade.report._record import RunRecord, number

FIRST_VALUES = 100
"""Eigenvalues a spectrum shows."""
_FLOOR = 1e-12
_MEGABYTE = 1e6

Points = Mapping[int, tuple[float, float]]


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
    found = [points for run in group.counted if (points := _POINTS[draw](run, wanted.key))]
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


def last_array(run: RunRecord, key: str) -> Any:
    """The array of the last diagnosed round that has one, or None."""
    return next((arrays[key] for _, arrays in sorted(run.diagnostics.items(), reverse=True) if arrays.get(key)), None)


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


def _by_round(run: RunRecord, key: str) -> Points:
    return {r.number: (float(r.number), r.fields[key]) for r in run.history if key in r.fields}


def _by_traffic(run: RunRecord, key: str) -> Points:
    """Against all that was sent up to and in the round."""
    sent, points = 0.0, {}
    for r in run.history:
        if "bytes_up" not in r.fields or "bytes_down" not in r.fields:
            return {}
        sent += (r.fields["bytes_up"] + r.fields["bytes_down"]) / _MEGABYTE
        if key in r.fields:
            points[r.number] = (sent, r.fields[key])
    return points


def _by_eigenvalue(run: RunRecord, key: str) -> Points:
    """Natural logarithms, so that values of many sizes can be told apart."""
    values = enumerate((last_array(run, key) or [])[:FIRST_VALUES], 1)
    return {k: (float(k), math.log(max(float(v), _FLOOR))) for k, v in values if v is not None}


def _by_client(run: RunRecord, key: str) -> Points:
    """Clients from the worst served to the best, in percent of all."""
    values = sorted(value for row in run.clients if (value := number(row.get(key))) is not None)
    return {index: (100 * index / len(values), value) for index, value in enumerate(values, 1)}


def _by_stage(run: RunRecord, key: str) -> Points:
    stored = run.summary.get(key)
    values = enumerate(map(number, stored)) if isinstance(stored, list) else ()
    return {index: (float(index), value) for index, value in values if value is not None}


_POINTS: dict[str, Callable[[RunRecord, str], Points]] = {
    "rounds": _by_round,
    "traffic": _by_traffic,
    "spectrum": _by_eigenvalue,
    "clients": _by_client,
    "stages": _by_stage,
}
