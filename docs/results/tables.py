"""The tables of the pages, and the files beside them, from the kept runs."""

import shlex
import statistics
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import forms
import method_tables
import ranks
import run_queue
from cells import NONE, comma_separated, signed, table_of, with_spread, within
from kept import Kept, Method, check_comparable

from fedblade.presets.published import Line
from fedblade.results import Table, markdown_table
from fedblade.studies import plan_reproduction

HERE = Path(__file__).parent
OUT = Path("runs/queue")
FASHION, PILOT = "fashion.toml:ten", "fashion.toml:pilot"
CHOICE, CONFIRMED = "fashion.toml:choose", "fashion.toml:confirm"
LEVELS = ("0.05", "0.5")
"""The α for which forms of FedBlade are compared."""
TABLE_1 = ("queue.toml:b", "queue.toml:d")
RUN_COLUMNS = (
    "seed", "accuracy", "final", "effective classes", "missing classes", "split", "data", "commit", "folder",
)  # fmt: skip
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
    fashion = methods_of(FASHION, queue)
    made = {page: {"fashion": method_tables.contrast_table(fashion, pairs)} for page, pairs in CONTRASTS.items()}
    made["fedblade.md"] |= {
        "strong": paper_table([each for grid in TABLE_1 for each in methods_of(grid, queue)], "strong"),
        "mild": paper_table(methods_of("queue.toml:c", queue), "mild"),
    }
    made["fashion.md"] = {
        "accuracy": method_tables.accuracy_table(fashion),
        "seeds": method_tables.seeds_table(fashion),
        "ranks": method_tables.rank_table(fashion),
        "diagnostics": method_tables.diagnostics_table(fashion),
        "pilot": pilot_table(queue),
        "share": method_tables.share_table(fashion[-1]),
    }
    choice, confirmed = ({level: methods_of(grid, queue, level) for level in LEVELS} for grid in (CHOICE, CONFIRMED))
    made["forms.md"] = {
        "choice": forms.choice_table(choice),
        "choice diagnostics": method_tables.diagnostics_table(choice[LEVELS[0]]),
        "confirmed": forms.confirmed_table(confirmed),
        "differences": forms.difference_table(confirmed),
        "diagnostics": method_tables.diagnostics_table(confirmed[LEVELS[0]]),
    }
    return made | {"README.md": {"queue": queue_table(queue)}}


def files(queue: Path) -> dict[str, str]:
    """The contents of the CSV files and, if methods can be ranked, of the figure of ranks."""
    fashion = methods_of(FASHION, queue)
    made = {"runs.csv": comma_separated(("method", "table", *RUN_COLUMNS), run_rows(queue))}
    if not method_tables.can_rank(fashion):
        return made
    found = method_tables.ranked(fashion)
    rows = [(each.label, f"{each.mean:.2f}", each.low, each.high) for each in found]
    return made | {
        "fashion/ranks.csv": comma_separated(("method", "mean rank", "from", "to"), rows),
        "fashion/ranks.svg": ranks.figure(found, method_tables.rank_caption(fashion)),
    }


@cache
def lines_of(grid: str) -> list[tuple[Line, list[tuple[str, int]]]]:
    """The lines of a grid, each with the names and the seeds of its runs."""
    plan = plan_reproduction(str(HERE / grid))
    return [
        (line, [(run.folder.name, run.config.general.seed) for run in plan.planned(line.cells[0]).runs])
        for line in plan.lines
    ]


def methods_of(grid: str, queue: Path, level: str | None = None) -> list[Method]:
    """The methods of a grid, or of one of its levels, with their kept runs."""
    return [
        Method(
            line.columns["method"],
            tuple(Kept(queue / name, seed) for name, seed in runs if (queue / name).is_dir()),
            len(runs),
            line.published,
        )
        for line, runs in lines_of(grid)
        if level in (None, line.columns.get("level"))
    ]


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


def pilot_table(queue: Path) -> str:
    """The validation accuracy by learning rate."""
    rows = [
        [line.extra["optimizer.lr"], f"{Kept(queue / name, seed).accuracy:.2f}"]
        for line, runs in lines_of(PILOT)
        for name, seed in runs
    ]
    return table_of(["learning rate", "validation accuracy, mean of rounds 12, 14, …, 20"], rows)


def run_rows(queue: Path) -> list[tuple[object, ...]]:
    """Every kept run that a table has, with what the table is made from."""
    rows: list[tuple[object, ...]] = []
    for grid in (*TABLE_1, "queue.toml:c", FASHION, CHOICE, CONFIRMED):
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
        pictures = "FEDBLADE_DATA=JPEG " if step.jpeg else ""
        rows.append([step.letter, step.words, f"{done} of {len(runs)}", f"`{pictures}{command}`"])
    texts = Table.of_texts(["step", "what", "runs kept", "command"], rows, ["runs kept"])
    return markdown_table(texts).rstrip("\n")
