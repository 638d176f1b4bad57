"""The start of a run, over what it was while the digits came from scikit-learn."""

import importlib.util
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.benchmark import Case, Options, Result, Skipped, at_most
from benchmarks.fresh_process import measure_in_fresh_process
from benchmarks.timing import alternate, median, paired_ratios
from benchmarks.workloads.growth.row import GrowthRow

START = Case(
    "start of a run over the former",
    "the whole process of `run --set rounds=1`; the other side first imports what earlier versions imported and no run "
    "needs: scikit-learn, with its digits, and torch's library for symbolic shapes",
    at_most(0.65),
)


def measure(options: Options, repetitions: int = 5) -> Result:
    """Both sides in fresh processes that take turns, after one process of each side that warms up."""
    options.require_cpu()
    if importlib.util.find_spec("sklearn") is None:
        raise Skipped("compares with an import of scikit-learn, which is not installed; pip install scikit-learn")
    sides = [partial(seconds, side) for side in ("now", "former")]
    alternate(sides, 1)
    now, former = alternate(sides, options.repetitions(repetitions))
    ratios = paired_ratios(now, former)
    return Result(median(ratios), {"now s": median(now), "former s": median(former)}, ratios)


def seconds(side: str) -> float:
    """The time that a process of one side takes, from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        # With the bytecode that an installed package has, also where the caller's Python writes none.
        measure_in_fresh_process("benchmarks.processes.start", side, folder=Path(folder), PYTHONDONTWRITEBYTECODE="")
        return time.perf_counter() - began


ROWS = (GrowthRow(START, measure),)
