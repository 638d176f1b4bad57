"""Paired differences: how much two groups differ on the seeds that both have, with an interval."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from fedblade.results._comparison import ComparisonRow
from fedblade.results._groups import Group

_NORMAL = 1.959963984540054
# The 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom.
_STUDENT = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484,
    2.0452, 2.0423,
)  # fmt: skip


@dataclass(frozen=True)
class PairedDifference:
    """The mean over seeds of a group's accuracy minus that of another group, in points, with its 95 % interval.

    Both groups have trained with the `seeds`. The interval is Student's t interval of the differences by seed.
    """

    label: str
    against: str
    seeds: int
    mean: float
    low: float
    high: float

    @property
    def settled(self) -> bool:
        """Whether the interval leaves out 0."""
        return not self.low <= 0 <= self.high


def paired_difference(row: ComparisonRow, other: ComparisonRow) -> PairedDifference | None:
    """The accuracy that methods are ranked by, minus that of the other row; None with fewer than two shared seeds."""
    ours, theirs = _by_seed(row), _by_seed(other)
    differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    count = len(differences)
    if count < 2:
        return None
    mean = statistics.fmean(differences)
    half = t_quantile(count - 1) * statistics.stdev(differences) / math.sqrt(count)
    return PairedDifference(row.label, other.label, count, mean, mean - half, mean + half)


def differences_to_best(groups: Sequence[Group], rows: Sequence[ComparisonRow]) -> list[PairedDifference | None]:
    """How far each group is from the best one of its setting; None for the best, and where there is no difference."""
    best = {group.ranked_among: row for group, row in zip(groups, rows, strict=True) if row.rank == 1}
    pairs = ((row, best.get(group.ranked_among)) for group, row in zip(groups, rows, strict=True))
    return [None if first is None or first is row else paired_difference(row, first) for row, first in pairs]


def t_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t; beyond the table by the first terms of its expansion about the normal one."""
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    z = _NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _by_seed(row: ComparisonRow) -> dict[int, float]:
    """The accuracy by seed; of a seed that occurs more than once, the mean."""
    found: dict[int, list[float]] = {}
    for seed, accuracy in zip(row.seeds, row.ranked_seeds, strict=True):
        if seed is not None and accuracy is not None:
            found.setdefault(seed, []).append(accuracy)
    return {seed: statistics.fmean(values) for seed, values in found.items()}
