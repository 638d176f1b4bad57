"""Arrays of the last diagnosed round, mean over seeds, with the numbers the report shows."""

from collections.abc import Callable

from fedblade.report._calibration import bin_sums, filled_bins, reliability_curve
from fedblade.report._served import row_shares
from fedblade.results import Array, Group, Vector, side_of, snapshots, square, vector

Matrix = tuple[tuple[float | None, ...], ...]


def array_points(group: Group, draw: str, key: str) -> list[tuple[float, float]]:
    """The points of an array from left to right, none where the group has no such array."""
    return _POINTS[draw](group, key)


def array_matrix(group: Group, draw: str, key: str) -> Matrix | None:
    """Class by class: cosines, or the answers to each true class in percent of its samples."""
    array = Array(key, row_shares if draw == "confusion" else square)
    side, found = side_of([group], array), _last(group, array)
    if side is None or found is None:
        return None
    unit = 100.0 if draw == "confusion" else 1.0
    values = [None if value is None else unit * value for value in found]
    return tuple(tuple(values[at : at + side]) for at in range(0, len(values), side))


def _by_class(group: Group, key: str) -> list[tuple[float, float]]:
    """Classes from the least known to the best."""
    known = sorted(value for value in _last(group, Array(key, vector)) or () if value is not None)
    return [(float(place), value) for place, value in enumerate(known, 1)]


def _by_confidence(group: Group, key: str) -> list[tuple[float, float]]:
    """Right answers against confidence, both in percent, of each bin with enough answers; own models share no bins."""
    if group.personal:
        return []
    bins = filled_bins(_last(group, Array(key, bin_sums)), len(group.counted))
    curve = reliability_curve(bins)
    return [] if curve is None else list(zip(curve.rounds, curve.mean, strict=True))


def _last(group: Group, array: Array) -> Vector | None:
    shown = snapshots([group], array, most=1)
    return None if shown is None else shown.last[0]


_POINTS: dict[str, Callable[[Group, str], list[tuple[float, float]]]] = {
    "classes": _by_class,
    "reliability": _by_confidence,
}
