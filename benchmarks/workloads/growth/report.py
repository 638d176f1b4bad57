"""The report of many groups of runs over that of a quarter as many."""

import shutil
import tempfile
import time
import tomllib
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import tomli_w

from benchmarks.benchmark import Case, Options, Result, at_most
from benchmarks.timing import alternate, median, paired_ratios
from benchmarks.workloads.growth.row import GrowthRow
from fedblade.report import build_report
from fedblade.results import CONFIG, RECORD_FILES
from fedblade.runs import execute, load_config

GROUPS = Case(
    "report of 480 groups over 120",
    "CPU seconds of reading the runs and writing the page: copies of a run of 10 rounds with the default metrics, each "
    "with another learning rate",
    at_most(5),
)
ROUNDS, _FEW, _TIMES = 10, 120, 4


def measure(options: Options, few: int = _FEW, rounds: int = ROUNDS, repetitions: int = 3) -> Result:
    """Both reports in this process, after a report of two groups that warms up."""
    options.require_cpu()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sizes = (2, few, _TIMES * few)
        make_groups(folder, sizes, rounds)
        _seconds(folder / "2")
        sides = [partial(_seconds, folder / str(size)) for size in sizes[1:]]
        less, more = alternate(sides, options.repetitions(repetitions))
    ratios = paired_ratios(more, less)
    medians = {f"{_TIMES * few} groups s": median(more), f"{few} groups s": median(less)}
    return Result(median(ratios), medians, ratios)


def make_groups(folder: Path, sizes: Iterable[int], rounds: int = ROUNDS) -> None:
    """A folder of runs for each size, named by it: copies of one run with as many learning rates."""
    config = load_config("quickstart", {"rounds": rounds, "device": "cpu"})[0]
    execute(config, out=folder / "run")
    for size in sizes:
        _copy(folder / "run", folder / str(size), size)


def _copy(run: Path, below: Path, groups: int) -> None:
    """Copies of what a report reads of a run, with different learning rates."""
    for number in range(groups):
        copy = below / f"{number:04d}"
        copy.mkdir(parents=True)
        for name in RECORD_FILES:
            if (run / name).is_file():
                shutil.copy(run / name, copy)
        config = tomllib.loads((run / CONFIG).read_text(encoding="utf-8"))
        config["optimizer"]["lr"] = (number + 1) / 1000
        (copy / CONFIG).write_text(tomli_w.dumps(config), encoding="utf-8")


def _seconds(runs: Path) -> float:
    began = time.process_time()
    build_report([runs], runs.with_suffix(".html"))
    return time.process_time() - began


ROWS = (GrowthRow(GROUPS, measure),)
