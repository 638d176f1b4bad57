"""Personal models that are tuned and measured after the last round, as the number of clients grows."""

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import fedblade
from benchmarks.benchmark import Case, Options, Result, at_most
from benchmarks.timing import alternate, median, one_thread, paired_ratios
from benchmarks.workloads.growth.many_classes import noise
from benchmarks.workloads.growth.row import GrowthRow
from fedblade.runs import RunListener

MODELS = Case(
    "4,000 over 1,000 personal models",
    "FedAvg-FT tunes and measures all clients' models after the last round, with the run folder on disk: noise, 20 "
    "samples a client, an MLP with 32 features, one thread",
    at_most(4.2),
)


class _Clock(RunListener):
    """The times of the first and the newest call about personal models."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.last = 0.0

    def on_personal_model(self, done: int, total: int) -> None:  # noqa: ARG002
        self.last = time.perf_counter()
        self.first = self.first or self.last


def seconds_of_models(clients: int) -> float:
    """The seconds from the end of the last round to the last measured model."""
    clock = _Clock()
    settings: dict[str, Any] = {
        "method": "fedavg-ft", "model": "mlp", "model.dim": 32, "partition": "iid", "num_clients": clients,
        "clients_per_round": 4, "rounds": 1, "epochs": 1, "batch_size": 20, "evaluation.metrics": ["accuracy"],
        "device": "cpu",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        fedblade.run(
            "quickstart", dataset=noise(10, 20 * clients, 16), out=Path(folder) / "run", listener=clock, **settings
        )
    assert clock.first is not None
    return clock.last - clock.first


def measure(options: Options, few: int, many: int) -> Result:
    """Both numbers of clients, taking turns. The first run warms up."""
    options.require_cpu()
    with one_thread():
        seconds_of_models(min(few, 100))
        large, small = alternate(
            [lambda: seconds_of_models(many), lambda: seconds_of_models(few)], options.repetitions(3)
        )
    ratios = paired_ratios(large, small)
    medians = {f"{many:,} clients s": median(large), f"{few:,} clients s": median(small)}
    return Result(median(ratios), medians, ratios)


ROWS = (GrowthRow(MODELS, partial(measure, few=1_000, many=4_000)),)
