"""`memory`: what a million registered clients cost, against a thousand."""

import tempfile
from pathlib import Path

from benchmarks.benchmark import Benchmark, Case, Measured, Options, Result, at_most
from benchmarks.fresh_process import measure_in_fresh_process
from benchmarks.timing import alternate, median, paired_ratios

_WHAT = (
    "largest resident memory of 1,000,000 registered clients over that of 1,000: Scaffold on digits, 100 clients per "
    "round, 5 rounds, state of every client on disk, every run in a fresh process"
)
MANY = Case("1,000,000 clients over 1,000", _WHAT, at_most(1.2))


def measure(
    options: Options,
    many: int = 1_000_000,
    few: int = 1_000,
    per_round: int = 100,
    rounds: int = 5,
    repetitions: int = 3,
) -> Measured:
    """Peak memory of both populations, taking turns; the note has the seconds per round."""
    options.require_cpu()
    round_seconds: dict[int, float] = {}

    def side(population: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            result = measure_in_fresh_process(
                "benchmarks.processes.memory", str(population), str(per_round), str(rounds), folder=Path(folder)
            )
        round_seconds[population] = median(result["round_seconds"])
        return float(result["mebibytes"])

    many_mebibytes, few_mebibytes = alternate([lambda: side(many), lambda: side(few)], options.repetitions(repetitions))
    ratios = paired_ratios(many_mebibytes, few_mebibytes)
    medians = {f"{many} MiB": median(many_mebibytes), f"{few} MiB": median(few_mebibytes)}
    note = f"{round_seconds[many]:.2f} and {round_seconds[few]:.2f} s per round"
    yield MANY.label, Result(median(ratios), medians, ratios, note)


BENCHMARKS = (Benchmark("memory", "resident memory of a large population", (MANY,), measure),)
