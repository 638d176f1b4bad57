"""Compares groups of runs: one row of numbers per group."""

import math
import statistics
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedblade import protocols
from fedblade.core.errors import Misconfigured
from fedblade.results._groups import Group, group_runs
from fedblade.results._read import read_runs
from fedblade.results._record import RunRecord

_THRESHOLD_STEP = 5
_DEFAULT_THRESHOLD = 90.0
_PERCENT = 100


@dataclass(frozen=True, kw_only=True)
class ComparisonRow:
    """One row of the comparison: means over seeds, with the sample standard deviation (n−1), None for one seed.

    Means are over the finished runs, or over all runs while none is finished (`finished == 0`). Methods are ranked by
    `ranked_mean`: the mean over the last ten rounds or, if the model is `calibrated` at the end of the run, the
    accuracy of the calibrated model. A rank is 1 for the highest mean among complete groups of the same setting, and
    None where ranking would mislead. `own_mean` is the accuracy of the personal models, with `tests_apart` on the
    samples of the client, otherwise on the whole test set. `ranked_seeds` and `final_seeds` have one accuracy per seed.
    `claimed` and `own_claimed` say that nodes have measured the accuracy, or that of the personal models, by
    themselves; `on_validation` that it is one on samples held out of the training data, and no test accuracy.
    """

    label: str
    method: str
    accuracy_of: str
    runs: int
    finished: int
    failed: int
    seeds: tuple[int | None, ...]
    calibrated: bool
    last10_mean: float | None
    last10_std: float | None
    last10_pooled_std: float | None
    ranked_mean: float | None
    ranked_std: float | None
    rank: int | None = None
    final_mean: float | None
    final_std: float | None
    final_rank: int | None = None
    own_mean: float | None
    own_std: float | None
    tests_apart: bool
    threshold: float
    rounds_to: tuple[int | None, ...]
    rounds_done: tuple[int, ...]
    rounds_evaluated: tuple[int, ...]
    seconds_per_round: float | None
    bytes_up_per_round: float | None
    bytes_down_per_round: float | None
    ranked_seeds: tuple[float | None, ...] = ()
    final_seeds: tuple[float | None, ...] = ()
    flags: tuple[str, ...] = ()
    claimed: bool = False
    own_claimed: bool = False
    on_validation: bool = False

    @property
    def evaluations(self) -> tuple[tuple[int, int], ...]:
        """The number of evaluated rounds and of all rounds, per seed."""
        return tuple(zip(self.rounds_evaluated, self.rounds_done, strict=True))

    @property
    def rounds_to_mean(self) -> float | None:
        """The mean round at which the threshold was reached, None unless all seeds reached it."""
        reached = [round_ for round_ in self.rounds_to if round_ is not None]
        return statistics.fmean(reached) if reached and len(reached) == len(self.rounds_to) else None

    @property
    def rounds_to_text(self) -> str:
        """The mean round, or `T+` with the number of rounds T when a seed never reached the threshold."""
        if self.rounds_to_mean is None:
            return f"{max(self.rounds_done, default=0)}+"
        return f"{self.rounds_to_mean:.1f}".removesuffix(".0")

    @property
    def rounds_to_seeds_text(self) -> tuple[str, ...]:
        """The round per seed, `T+` where the seed never reached the threshold."""
        pairs = zip(self.rounds_to, self.rounds_done, strict=True)
        return tuple(f"{done}+" if reached is None else str(reached) for reached, done in pairs)


def comparison_rows(paths: Sequence[Path], threshold: float | None = None) -> list[ComparisonRow]:
    """Compare all runs at or below `paths`: one row per method and setting.

    `threshold` is the accuracy in percent for "rounds to"; by default `suggest_threshold` chooses it.
    """
    groups = group_runs(read_runs(paths))
    return compare(groups, suggest_threshold(groups) if threshold is None else check_threshold(threshold))


def check_threshold(threshold: float) -> float:
    """The given accuracy in percent, or an error where no run could reach it."""
    if not 0 < threshold <= _PERCENT:
        raise Misconfigured(
            f"the threshold is {threshold:g}; expected an accuracy in percent, above 0 and at most 100, such as 90."
        )
    return threshold


def suggest_threshold(groups: Sequence[Group]) -> float:
    """The largest multiple of 5 % that at least half of the runs reach."""
    runs = ([round_.accuracy for round_ in run.history] for group in groups for run in group.counted)
    evaluated = ([accuracy for accuracy in accuracies if accuracy is not None] for accuracies in runs)
    reached = [max(accuracies) for accuracies in evaluated if accuracies]
    if not reached:
        return _DEFAULT_THRESHOLD
    middle = statistics.median_low(sorted(reached))
    return float(max(_THRESHOLD_STEP, math.floor(middle / _THRESHOLD_STEP) * _THRESHOLD_STEP))


def compare(groups: Sequence[Group], threshold: float) -> list[ComparisonRow]:
    """One row per group, in the same order."""
    rows = [_row(group, threshold) for group in groups]
    ranks = _ranks(groups, [row.ranked_mean for row in rows])
    final_ranks = _ranks(groups, [row.final_mean for row in rows])
    ranked = zip(rows, ranks, final_ranks, strict=True)
    return [replace(row, rank=rank, final_rank=final_rank) for row, rank, final_rank in ranked]


def _row(group: Group, threshold: float) -> ComparisonRow:
    runs = group.counted
    last10_mean, last10_std = _spread([run.last10_accuracy for run in runs])
    ranked_mean, ranked_std = _spread([run.ranked_accuracy for run in runs])
    final_mean, final_std = _spread([run.final_accuracy for run in runs])
    own_mean, own_std = _spread([run.personal_accuracy for run in runs])
    return ComparisonRow(
        label=group.label,
        method=group.method,
        accuracy_of=group.runs[0].accuracy_of,
        runs=len(group.runs),
        finished=group.finished,
        failed=sum(run.status == "failed" for run in group.runs),
        seeds=tuple(run.seed for run in runs),
        calibrated=any(run.calibrated for run in runs),
        last10_mean=last10_mean,
        last10_std=last10_std,
        last10_pooled_std=protocols.pooled_last_std([run.evaluated() for run in runs], 10),
        ranked_mean=ranked_mean,
        ranked_std=ranked_std,
        final_mean=final_mean,
        final_std=final_std,
        own_mean=own_mean,
        own_std=own_std,
        tests_apart=group.runs[0].tests_apart,
        threshold=threshold,
        rounds_to=tuple(run.rounds_to(threshold) for run in runs),
        rounds_done=tuple(run.rounds_done for run in runs),
        rounds_evaluated=tuple(run.rounds_evaluated for run in runs),
        seconds_per_round=_mean(runs, lambda run: run.seconds_per_round),
        bytes_up_per_round=_mean(runs, lambda run: run.per_round("bytes_up")),
        bytes_down_per_round=_mean(runs, lambda run: run.per_round("bytes_down")),
        ranked_seeds=tuple(run.ranked_accuracy for run in runs),
        final_seeds=tuple(run.final_accuracy for run in runs),
        flags=group.flags,
        claimed=any(run.claimed for run in runs),
        own_claimed=any(run.personal_claimed for run in runs),
        on_validation=group.on_validation,
    )


def _spread(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean and standard deviation over seeds (n−1) of the values that exist."""
    present = [value for value in values if value is not None]
    return protocols.mean_std(present) if present else (None, None)


def _mean(runs: Sequence[RunRecord], value: Callable[[RunRecord], float | None]) -> float | None:
    return _spread([value(run) for run in runs])[0]


def _ranks(groups: Sequence[Group], means: Sequence[float | None]) -> list[int | None]:
    """The rank of every complete group within its setting; None for other groups and for the only one of a setting."""
    complete = [mean if group.finished == len(group.runs) else None for group, mean in zip(groups, means, strict=True)]
    rivals: dict[object, list[float]] = {}
    for group, mean in zip(groups, complete, strict=True):
        if mean is not None:
            rivals.setdefault(group.ranked_among, []).append(mean)
    for means_in_setting in rivals.values():
        means_in_setting.sort()
    return [
        None if mean is None else _rank(mean, rivals[group.ranked_among])
        for group, mean in zip(groups, complete, strict=True)
    ]


def _rank(mean: float, ascending: Sequence[float]) -> int | None:
    """One more than the number of higher means, None where there is no other mean."""
    return 1 + len(ascending) - bisect_right(ascending, mean) if len(ascending) > 1 else None
