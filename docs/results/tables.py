"""The tables of the pages, and the files beside them, from the kept runs."""

import shlex
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import ranks
import run_queue
from cells import NONE, comma_separated, signed, table_of, with_spread, within
from kept import Kept, Method, check_comparable

from fedblade.presets.published import Line
from fedblade.results import ComparisonRow, Table, comparison_rows, markdown_table, paired_difference
from fedblade.studies import plan_reproduction

HERE = Path(__file__).parent
OUT = Path("runs/queue")
FASHION = "fashion.toml:ten"
TABLE_1 = ("queue.toml:b", "queue.toml:d")
REACHED = 70
"""The accuracy of "reached in round" on Fashion-MNIST."""
RUN_COLUMNS = (
    "seed", "accuracy", "final", "effective classes", "missing classes", "split", "data", "commit", "folder",
)  # fmt: skip
FIELDS = {
    "effective rank of features": "erank_feature",
    "the same, standardised": "erank_feature_correlation",
    "rank after the projection": "erank_proj",
    "share of variance within classes": "nc1_feature_ratio",
    "length of an update": "drift_norm",
    "cosine of updates": "update_cosine",
}
"""The diagnostics of the last round, by the heading of their column."""
CONTRASTS = {
    "fedblade.md": (("FedBlade", "FedETF"), ("FedBlade, balanced", "FedETF"), ("FedBlade", "FedAvg")),
    "feddecorr.md": (("FedDecorr", "FedAvg"),),
    "fedetf.md": (("FedETF", "FedAvg"),),
    "fedgela.md": (("FedGELA", "FedAvg"), ("FedGELA", "FedETF")),
    "feddr_plus.md": (("FedDr+", "FedAvg"), ("FedDr+", "FedETF")),
}
"""Which methods a page compares on Fashion-MNIST."""


def of_pages(queue: Path) -> dict[str, dict[str, str]]:
    """The tables by page and name."""
    fashion = complete(methods_of(FASHION, queue))
    made = {page: {"fashion": contrast_table(fashion, pairs)} for page, pairs in CONTRASTS.items()}
    made["fedblade.md"] |= {
        "strong": paper_table([each for grid in TABLE_1 for each in methods_of(grid, queue)], "strong"),
        "mild": paper_table(methods_of("queue.toml:c", queue), "mild"),
    }
    made["fashion.md"] = {
        "accuracy": fashion_table(fashion),
        "seeds": seeds_table(fashion),
        "ranks": rank_table(fashion),
        "diagnostics": diagnostics_table(fashion),
    }
    return made | {"README.md": {"queue": queue_table(queue)}}


def files(queue: Path) -> dict[str, str]:
    """The contents of the CSV files and of the figure of ranks."""
    fashion = complete(methods_of(FASHION, queue))
    found = ranked(fashion)
    ends = [f"{each.mean:.2f}" for each in found]
    rank_rows = [(each.label, mean, each.low, each.high) for each, mean in zip(found, ends, strict=True)]
    return {
        "runs.csv": comma_separated(("method", "table", *RUN_COLUMNS), run_rows(queue)),
        "fashion/ranks.csv": comma_separated(("method", "mean rank", "from", "to"), rank_rows),
        "fashion/ranks.svg": ranks.figure(found, rank_caption(fashion)),
    }


@cache
def lines_of(grid: str) -> list[tuple[Line, list[tuple[str, int]]]]:
    """The lines of a grid, each with the names and the seeds of its runs."""
    plan = plan_reproduction(str(HERE / grid))
    return [
        (line, [(run.folder.name, run.config.general.seed) for run in plan.planned(line.cells[0]).runs])
        for line in plan.lines
    ]


def methods_of(grid: str, queue: Path) -> list[Method]:
    """The methods of a grid with their kept runs."""
    return [
        Method(
            line.columns["method"],
            tuple(Kept(queue / name, seed) for name, seed in runs if (queue / name).is_dir()),
            len(runs),
            line.published,
        )
        for line, runs in lines_of(grid)
    ]


def complete(methods: Sequence[Method]) -> list[Method]:
    """The methods with the runs of those seeds that all of them have."""
    seeds = set.intersection(*({run.seed for run in method.runs} for method in methods))
    if not seeds:
        sys.exit("no seed has a kept run of every method of the table. Finish the runs and keep them first.")
    return [replace(each, runs=tuple(run for run in each.runs if run.seed in seeds)) for each in methods]


def over_seeds(runs: Sequence[Kept], number: Callable[[Kept], float]) -> str:
    """The mean of a number over the runs of a method."""
    return f"{statistics.fmean(map(number, runs)):.2f}"


def paper_table(methods: Sequence[Method], name: str) -> str:
    """Ours beside the paper's, with the hardness of the split and the commit."""
    check_comparable(methods, name)
    rows = []
    for method in methods:
        counted, theirs = f"{len(method.runs)} of {method.planned}", method.published
        paper = NONE if theirs is None else f"{theirs.mean:.2f} ± {theirs.std:.2f}"
        if not method.runs:
            rows.append([method.label, counted, "not run", NONE, paper, *[NONE] * 4])
            continue
        rows.append(
            [
                method.label,
                counted,
                with_spread([run.accuracy for run in method.runs]),
                within(method.runs),
                paper,
                NONE if theirs is None or theirs.mean is None else signed(method.mean - theirs.mean),
                over_seeds(method.runs, lambda run: run.hardness.effective_classes),
                over_seeds(method.runs, lambda run: run.hardness.missing_classes),
                ", ".join(sorted({f"`{run.commit}`" for run in method.runs})),
            ]
        )
    header = ["method", "seeds", "ours", "moves by", "paper", "difference", "classes of a client", "classes lacking"]
    return table_of([*header, "commit"], rows)


def fashion_table(methods: Sequence[Method]) -> str:
    """The result of every method on Fashion-MNIST."""
    check_comparable(methods, "fashion")
    rows = []
    for method in sorted(methods, key=lambda each: -each.mean):
        reached = [run.rounds_to(REACHED) for run in method.runs]
        rows.append(
            [
                method.label,
                str(len(method.runs)),
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
    late = np.array([[run.last for run in method.runs] for method in methods])
    return ranks.ranks([method.label for method in methods], late)


def rank_caption(methods: Sequence[Method]) -> str:
    """What the figure of ranks shows."""
    seeds = ", ".join(str(run.seed) for run in methods[0].runs)
    return f"rank by accuracy, {ranks.SHARE} % of draws; seeds {seeds}; 1 is the best"


def rank_table(methods: Sequence[Method]) -> str:
    """The ranks with their intervals."""
    rows = [[each.label, f"{each.mean:.1f}", f"{each.low} to {each.high}"] for each in ranked(methods)]
    return table_of(["method", "mean rank", f"{ranks.SHARE} % of draws"], rows)


def diagnostics_table(methods: Sequence[Method]) -> str:
    """What is measured in the last round, in the mean over seeds."""
    rows = []
    for method in methods:
        values = [[run.rounds[-1].get(name) for run in method.runs] for name in FIELDS.values()]
        rows.append([method.label, *(NONE if None in each else f"{statistics.fmean(each):.3g}" for each in values)])
    return table_of(["method", *FIELDS], rows)


def contrast_table(methods: Sequence[Method], pairs: Sequence[tuple[str, str]]) -> str:
    """Differences of methods on the seeds that both have, with Student's interval, and what follows."""
    by_label = {method.label: method for method in methods}
    rows = [contrast(by_label[first], by_label[second]) for first, second in pairs]
    return table_of(["Fashion-MNIST", "seeds", "mean difference", "95 % interval", "says"], rows)


def contrast(first: Method, second: Method) -> list[str]:
    """A line of `contrast_table`."""
    name = f"{first.label} − {second.label}"
    ours, theirs = ({run.seed: run.accuracy for run in method.runs} for method in (first, second))
    seeds = sorted(ours.keys() & theirs.keys())
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


def run_rows(queue: Path) -> list[tuple[object, ...]]:
    """Every kept run that a table has, with what the table is made from."""
    rows: list[tuple[object, ...]] = []
    for grid in (*TABLE_1, "queue.toml:c", FASHION):
        for method in methods_of(grid, queue):
            for run in method.runs:
                numbers = (run.accuracy, run.final, run.hardness.effective_classes, run.hardness.missing_classes)
                texts = (run.split["digest"][:16], run.split["data"][:16], run.commit, run.folder.name)
                rows.append((method.label, grid, run.seed, *(f"{number:.6g}" for number in numbers), *texts))
    return rows


def queue_table(queue: Path) -> str:
    """The steps of the queue, how much of each is kept, and the command that does the rest."""
    rows = []
    for step in run_queue.STEPS:
        runs = plan_reproduction(step.grid, where=step.where).runs
        done = 0 if step.jpeg else sum((queue / run.folder.name).is_dir() for run in runs)
        grid = f"docs/results/{step.source}" if ".toml" in step.source else step.source
        command = shlex.join(["fedblade", *step.command(grid, run_queue.folder_of(step, OUT), "cuda")])
        rows.append([step.letter, step.words, f"{done} of {len(runs)}", f"`{command}`"])
    texts = Table.of_texts(["step", "what", "runs kept", "command"], rows, ["runs kept"])
    return markdown_table(texts).rstrip("\n")
