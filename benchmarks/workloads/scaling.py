"""`scaling`: one process against two that train the same cohort together, on the CPU."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.benchmark import Benchmark, Case, Measured, Options, Result, at_least
from benchmarks.fresh_process import measure_in_fresh_process
from benchmarks.timing import alternate, median, paired_ratios

_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}
_WHAT = (
    "a round of MobileNetV2 in one process over the same in two (torchrun, gloo), one thread each: 8 equal clients on "
    "digits, 1 epoch, batch 32, FedAvg, one client after another, training only, the first round left out"
)
TWO = Case("one process over two", _WHAT, at_least(1.7))


def measure(
    options: Options,
    model: str = "mobilenet_v2",
    clients: int = 8,
    rounds: int = 3,
    repetitions: int = 3,
    launcher: Sequence[str] = _TORCHRUN,
) -> Measured:
    """Seconds per round of one process and of two, taking turns, in fresh processes."""
    options.require_cpu()
    reached: dict[int, float] = {}

    def side(processes: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            result = measure_in_fresh_process(
                "benchmarks.processes.scaling", model, str(clients), str(rounds), folder=Path(folder),
                launcher=launcher if processes > 1 else (), **_ONE_THREAD,
            )  # fmt: skip
        reached[processes] = result["accuracy"]
        return median(result["round_seconds"])

    one, two = alternate([lambda: side(1), lambda: side(2)], options.repetitions(repetitions))
    ratios = paired_ratios(one, two)
    medians = {"one process s/round": median(one), "two processes s/round": median(two)}
    note = f"accuracies at the end {reached[1]:.2f} and {reached[2]:.2f} %"
    yield TWO.label, Result(median(ratios), medians, ratios, note)


BENCHMARKS = (Benchmark("scaling", "one process against two on the CPU", (TWO,), measure),)
