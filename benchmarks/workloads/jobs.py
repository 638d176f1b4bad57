"""`jobs`: the nine runs of `make demo` one after another, against two at a time, on the CPU."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.benchmark import Benchmark, Case, Measured, Options, Result, Skipped, at_least
from benchmarks.fresh_process import measure_in_fresh_process
from benchmarks.timing import alternate, median, paired_ratios
from fedblade.core.machine import cores

_JOBS = 2
_WHAT = (
    "the comparison of `make demo` with --jobs 1 over the same with --jobs 2: nine runs of the quickstart, the whole "
    "command with its imports, its table and its report"
)
TWO_JOBS = Case("one after another over two jobs", _WHAT, at_least(1.6))


def measure(options: Options, changes: Sequence[str] = (), repetitions: int = 2) -> Measured:
    """Seconds of both commands, taking turns. `changes` are further options of the comparison."""
    options.require_cpu()
    if cores() < _JOBS:
        raise Skipped("needs two cores")
    reached: dict[int, float] = {}

    def side(jobs: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            done = measure_in_fresh_process("benchmarks.processes.demo", str(jobs), *changes, folder=Path(folder))
        reached[jobs] = done["accuracy"]
        return float(done["seconds"])

    one, two = alternate([lambda: side(1), lambda: side(_JOBS)], options.repetitions(repetitions))
    ratios = paired_ratios(one, two)
    medians = {"one after another s": median(one), "two jobs s": median(two)}
    note = f"median accuracies of the runs {reached[1]:.2f} and {reached[_JOBS]:.2f} %"
    yield TWO_JOBS.label, Result(median(ratios), medians, ratios, note)


BENCHMARKS = (Benchmark("jobs", "one run after another against two at a time on the CPU", (TWO_JOBS,), measure),)
