"""The tables that compare all methods on one data set by several seeds: accuracy, ranks, differences, diagnostics."""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import ranks
from cells import NONE, signed, table_of, with_spread, within
from kept import Method, check_comparable

from fedblade.results import ComparisonRow, comparison_rows, paired_difference

BALANCE, PAPER_WEIGHT = 0.1, 0.005
"""The share of the supervised gradient that the balanced runs give LDDecorr, and the weight that the paper gives it."""
WINDOWS = ((1, 10), (11, 50), (51, 100))
"""Rounds for which the share is shown."""
REACHED = 70
"""The accuracy of "reached in round" on Fashion-MNIST."""
FIELDS = {
    "effective rank of features": "erank_feature",
    "the same, standardised": "erank_feature_correlation",
    "rank after the projection": "erank_proj",
    "share of variance within classes": "nc1_feature_ratio",
    "length of an update": "drift_norm",
    "cosine of updates": "update_cosine",
}
"""The diagnostics of the last round, by the heading of their column."""
CONTRAST_HEADER = ("Fashion-MNIST", "seeds", "mean difference", "95 % interval", "says")


def complete(methods: Sequence[Method]) -> list[Method]:
    """The methods with the most kept runs, if they are of the same seeds; these are ranked against each other."""
    most = max(methods, key=lambda each: len(each.runs))
    seeds = [run.seed for run in most.runs]
    if not seeds:
        sys.exit("there is no kept run of fashion.toml:ten. Finish some of its runs and keep them first.")
    return [each for each in methods if [run.seed for run in each.runs] == seeds]


def accuracy_table(methods: Sequence[Method]) -> str:
    """The result of every method on Fashion-MNIST."""
    check_comparable(methods, "fashion")
    rows = []
    for method in sorted((each for each in methods if each.runs), key=lambda each: -each.mean):
        reached = [run.rounds_to(REACHED) for run in method.runs]
        rows.append(
            [
                method.label,
                f"{len(method.runs)} of {method.planned}",
                with_spread([run.accuracy for run in method.runs]),
                within(method.runs),
                with_spread([run.final for run in method.runs]),
                ", ".join(NONE if each is None else str(each) for each in reached),
            ]
        )
    return table_of(
        ["method", "seeds", "last 5 measured", "moves by", "final round", f"{REACHED} % reached in round"], rows
    )


def seeds_table(methods: Sequence[Method]) -> str:
    """The split and the code of every seed."""
    first = {run.seed: run for method in methods for run in method.runs}
    rows = [
        [
            str(seed),
            f"`{run.split['digest'][:16]}`",
            f"{run.hardness.effective_classes:.2f}",
            f"{100 * run.hardness.largest_share:.0f} %",
            f"{run.hardness.missing_classes:.2f}",
            f"`{run.split['data'][:16]}`",
            f"`{run.commit}`",
        ]
        for seed, run in sorted(first.items())
    ]
    header = ["seed", "split", "classes of a client", "share of the largest class", "classes lacking", "data", "commit"]
    return table_of(header, rows)


def ranked(methods: Sequence[Method]) -> list[ranks.Rank]:
    """The ranks of the methods."""
    among = complete(methods)
    late = np.array([[run.last for run in method.runs] for method in among])
    return ranks.ranks([method.label for method in among], late)


def rank_caption(methods: Sequence[Method]) -> str:
    """What the figure of ranks shows."""
    seeds = ", ".join(str(run.seed) for run in complete(methods)[0].runs)
    return f"rank by accuracy, {ranks.SHARE} % of draws; seeds {seeds}; 1 is the best"


def can_rank(methods: Sequence[Method]) -> bool:
    """Whether there are several seeds: the order within one seed says nothing about another."""
    return max(len(method.runs) for method in methods) > 1


def rank_table(methods: Sequence[Method]) -> str:
    """The ranks with their intervals, and their figure."""
    if not can_rank(methods):
        return "Not ranked yet: there is one seed."
    rows = [[each.label, f"{each.mean:.1f}", f"{each.low} to {each.high}"] for each in ranked(methods)]
    table = table_of(["method", "mean rank", f"{ranks.SHARE} % of draws"], rows)
    picture = "![Ranks of the methods with their spread](fashion/ranks.svg)"
    return f"{table}\n\n{picture}\n\nThe numbers are in [ranks.csv](fashion/ranks.csv)."


def diagnostics_table(methods: Sequence[Method]) -> str:
    """What is measured in the last round, in the mean over seeds."""
    rows = []
    for method in (each for each in methods if each.runs):
        values = [[run.rounds[-1].get(name) for run in method.runs] for name in FIELDS.values()]
        rows.append([method.label, *(NONE if None in each else f"{statistics.fmean(each):.3g}" for each in values)])
    return table_of(["method", *FIELDS], rows)


def share_table(balanced: Method) -> str:
    """How much of the supervised gradient LDDecorr would have with the paper's weight, from the balanced runs."""
    rows = []
    for run in balanced.runs:
        weights = [
            [row["lambda_eff"] for row in run.history if first <= row["round"] <= last and "lambda_eff" in row]
            for first, last in WINDOWS
        ]
        shares = [BALANCE * PAPER_WEIGHT / statistics.median(each) for each in weights]
        rows.append([str(run.seed), *(f"{share:.1f}" for share in shares)])
    return table_of(["seed", *(f"rounds {first} to {last}" for first, last in WINDOWS)], rows)


def contrast_table(methods: Sequence[Method], pairs: Sequence[tuple[str, str]]) -> str:
    """Differences of methods on the seeds that both have, with Student's interval, and what follows."""
    by_label = {method.label: method for method in methods}
    rows = [contrast(by_label[first], by_label[second]) for first, second in pairs]
    return table_of(CONTRAST_HEADER, rows)


def contrast(first: Method, second: Method) -> list[str]:
    """A line of `contrast_table`."""
    name = f"{first.label} − {second.label}"
    ours, theirs = ({run.seed: run.accuracy for run in method.runs} for method in (first, second))
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return [name, "0", "not run", NONE, "nothing yet"]
    found = paired_difference(row_of(first), row_of(second))
    if found is None:
        return [name, "1", signed(ours[seeds[0]] - theirs[seeds[0]]), NONE, "not settled: one seed"]
    says = "not settled" if not found.settled else "ahead" if found.mean > 0 else "behind"
    return [name, str(found.seeds), signed(found.mean), f"{signed(found.low)} to {signed(found.high)}", says]


def row_of(method: Method) -> ComparisonRow:
    """The method as the library compares it, by the accuracy that the protocol of its runs reports."""
    (row,) = comparison_rows([run.folder for run in method.runs])
    by_seed = {run.seed: run.accuracy for run in method.runs}
    return replace(row, ranked_seeds=tuple(by_seed[seed] for seed in row.seeds if seed is not None))
