"""The numbers of a group as points to draw: by round, by what was spent, by eigenvalue, by client or by stage."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fedblade import protocols
from fedblade.charts._arrays import CLASS_ACCURACY, last_array, reliability_points
from fedblade.charts._clients import estimated_accuracies, measured_accuracies
from fedblade.charts._model import Series, plain_series, series_over_seeds
from fedblade.results import Group, RunRecord, finite_number

SPECTRUM_LENGTH = 100
"""Eigenvalues that a spectrum shows."""
SMALLEST_EIGENVALUE = 1e-12
"""Eigenvalues below it are rounding errors, and their logarithms would dwarf all others."""

Points = Mapping[int, tuple[float, float]]
"""Places and heights by what seeds have in common, such as the round."""


def group_series(group: Group, kind: str, key: str) -> Series | None:
    """The mean over seeds at the points that all seeds share, None where no run has the number `key`."""
    if kind in _OF_MEANS:
        return plain_series(_OF_MEANS[kind](group))
    per_run = [points for run in group.counted if (points := _OF_RUNS[kind](run, key))]
    shared = sorted(set.intersection(*(set(points) for points in per_run))) if per_run else []
    if not shared:
        return None
    columns = [[points[index] for points in per_run] for index in shared]
    places = [statistics.fmean(x for x, _ in column) for column in columns]
    return series_over_seeds(places, [[y for _, y in column] for column in columns])


def sweep_series(groups: Sequence[tuple[float | None, Group]], key: str) -> Series | None:
    """One point for each value of the swept setting, or a level for a group that does not have the setting."""
    ends = [(x, values) for x, group in groups if (values := _final_values(group, key))]
    placed = sorted((x, values) for x, values in ends if x is not None)
    heights = [values for _, values in placed] or [values for _, values in ends][:1]
    return series_over_seeds([x for x, _ in placed], heights) if heights else None


def final_value(group: Group, key: str) -> float | None:
    """The mean over seeds of the number at the end of the run."""
    values = _final_values(group, key)
    return statistics.fmean(values) if values else None


def _by_round(run: RunRecord, key: str) -> Points:
    return {r.number: (float(r.number), r.numbers[key]) for r in run.history if key in r.numbers}


def _by_spent(run: RunRecord, key: str, *, spent: Sequence[str]) -> Points:
    """Against all that was spent up to and in the round, until a round does not say what it spent."""
    total, points = 0.0, {}
    for r in run.history:
        if any(name not in r.numbers for name in spent):
            break
        total += sum(r.numbers[name] for name in spent)
        if key in r.numbers:
            points[r.number] = (total, r.numbers[key])
    return points


def _by_eigenvalue(run: RunRecord, key: str) -> Points:
    """Natural logarithms, so that values of many sizes can be told apart."""
    values = enumerate((_last_stored(run, key) or [])[:SPECTRUM_LENGTH], 1)
    return {k: (float(k), math.log(max(float(v), SMALLEST_EIGENVALUE))) for k, v in values if v is not None}


def _last_stored(run: RunRecord, key: str) -> Any:
    """The array of the last diagnosed round that has one, or None."""
    return next((arrays[key] for _, arrays in sorted(run.diagnostics.items(), reverse=True) if arrays.get(key)), None)


def _by_client(run: RunRecord, key: str) -> Points:
    """Clients from the worst served to the best, in percent of all clients."""
    values = estimated_accuracies(run) if key == "expected_accuracy" else measured_accuracies(run)
    return {index: (100 * index / len(values), value) for index, value in enumerate(sorted(values), 1)}


def _by_stage(run: RunRecord, key: str) -> Points:
    stored = run.summary.get(key)
    values = enumerate(map(finite_number, stored)) if isinstance(stored, list) else ()
    return {index: (float(index), value) for index, value in values if value is not None}


def _by_class(group: Group) -> list[tuple[float, float]]:
    """Classes from the least known to the best, by their mean accuracy over seeds."""
    known = sorted(value for value in last_array(group, CLASS_ACCURACY) or () if value is not None)
    return [(float(place), value) for place, value in enumerate(known, 1)]


def _final_values(group: Group, key: str) -> list[float]:
    return [value for run in group.counted if (value := _run_final_value(run, key)) is not None]


def _run_final_value(run: RunRecord, key: str) -> float | None:
    """What the run ended with: a number of the summary, or the last value in the history."""
    match key:
        case "final_accuracy":
            return run.final_accuracy
        case "last10_accuracy":
            return run.ranked_accuracy
        case "last5_accuracy":
            return run.final_accuracy if run.calibrated else protocols.last_mean(run.evaluated(), 5)
    stored = finite_number(run.summary.get(key))
    measured = (r.numbers[key] for r in reversed(run.history) if key in r.numbers)
    return next(measured, None) if stored is None else stored


_OF_RUNS: dict[str, Callable[[RunRecord, str], Points]] = {
    "rounds": _by_round,
    "traffic": partial(_by_spent, spent=("bytes_up", "bytes_down")),
    "time": partial(_by_spent, spent=("seconds",)),
    "spectrum": _by_eigenvalue,
    "clients": _by_client,
    "stages": _by_stage,
}
_OF_MEANS: dict[str, Callable[[Group], list[tuple[float, float]]]] = {
    "classes": _by_class,
    "reliability": reliability_points,
}
"""Drawn from arrays whose mean over seeds is taken before their values are put in order."""
