"""Numbers of one run as points to draw, by round, by what was spent, by eigenvalue, by client or by stage."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedblade.report._clients import estimated_accuracies
from fedblade.results import RunRecord, number

FIRST_VALUES = 100
"""Eigenvalues a spectrum shows."""
FLOOR = 1e-12
"""Eigenvalues below it are no more than rounding, and their logarithms would dwarf all others."""
_MEGABYTE = 1e6

Points = Mapping[int, tuple[float, float]]
"""Places and heights by what seeds have in common, such as the round."""


def run_points(run: RunRecord, draw: str, key: str) -> Points:
    """The points of a field of the run, none where it has no such numbers."""
    return _POINTS[draw](run, key)


def _by_round(run: RunRecord, key: str) -> Points:
    return {r.number: (float(r.number), r.fields[key]) for r in run.history if key in r.fields}


def _by_traffic(run: RunRecord, key: str) -> Points:
    return _by_spent(run, key, ("bytes_up", "bytes_down"), _MEGABYTE)


def _by_time(run: RunRecord, key: str) -> Points:
    return _by_spent(run, key, ("seconds",), 1.0)


def _by_spent(run: RunRecord, key: str, spent: Sequence[str], unit: float) -> Points:
    """Against all that was spent up to and in the round, as far as every round says."""
    total, points = 0.0, {}
    for r in run.history:
        if any(each not in r.fields for each in spent):
            break
        total += sum(r.fields[each] for each in spent) / unit
        if key in r.fields:
            points[r.number] = (total, r.fields[key])
    return points


def _by_eigenvalue(run: RunRecord, key: str) -> Points:
    """Natural logarithms, so that values of many sizes can be told apart."""
    values = enumerate((_last_array(run, key) or [])[:FIRST_VALUES], 1)
    return {k: (float(k), math.log(max(float(v), FLOOR))) for k, v in values if v is not None}


def _last_array(run: RunRecord, key: str) -> Any:
    """The array of the last diagnosed round that has one, or None."""
    return next((arrays[key] for _, arrays in sorted(run.diagnostics.items(), reverse=True) if arrays.get(key)), None)


def _by_client(run: RunRecord, key: str) -> Points:
    """Clients from the worst served to the best, in percent of all; by their own models or by the labels they hold."""
    if key == "expected_accuracy":
        values = estimated_accuracies(run)
    else:
        values = [value for row in run.clients if (value := number(row.get(key))) is not None]
    return {index: (100 * index / len(values), value) for index, value in enumerate(sorted(values), 1)}


def _by_stage(run: RunRecord, key: str) -> Points:
    stored = run.summary.get(key)
    values = enumerate(map(number, stored)) if isinstance(stored, list) else ()
    return {index: (float(index), value) for index, value in values if value is not None}


_POINTS: dict[str, Callable[[RunRecord, str], Points]] = {
    "rounds": _by_round,
    "traffic": _by_traffic,
    "time": _by_time,
    "spectrum": _by_eigenvalue,
    "clients": _by_client,
    "stages": _by_stage,
}
