"""`memory`: what a million registered clients cost, against a thousand."""

import tempfile
from pathlib import Path

from fedblade.bench._base import Benchmark, Case, Measured, Options, Result, at_most
from fedblade.bench._child import measured_alone
from fedblade.bench._timing import alternate, median, paired_ratios

_WHAT = (
    "largest resident memory of 1,000,000 registered clients over that of 1,000: Scaffold on digits, 100 clients per "
    "round, 5 rounds, state of every client on disk, each run in a fresh process"
)
MANY = Case("1,000,000 clients over 1,000", _WHAT, at_most(1.2))


def measure(
    options: Options, many: int = 1_000_000, few: int = 1_000, per_round: int = 100, rounds: int = 5, usual: int = 3
) -> Measured:
    """Peak memory of both populations, taking turns; the time per round is told beside it."""
    options.require_cpu()
    paces: dict[int, float] = {}

    def side(population: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            found = measured_alone(
                "fedblade.bench._memory_run", str(population), str(per_round), str(rounds), folder=Path(folder)
            )
        paces[population] = median(found["round_seconds"])
        return float(found["mebibytes"])

    large, small = alternate([lambda: side(many), lambda: side(few)], options.repetitions(usual))
    ratios = paired_ratios(large, small)
    medians = {f"{many} MiB": median(large), f"{few} MiB": median(small)}
    note = f"{paces[many]:.2f} and {paces[few]:.2f} s per round"
    yield MANY.label, Result(median(ratios), medians, ratios, note)


BENCHMARKS = (Benchmark("memory", "resident memory of a large population", (MANY,), measure),)
