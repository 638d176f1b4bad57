"""What diagnostics cost with many classes and with wide features: seconds, bytes on disk, memory of the process."""

import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedblade
from benchmarks.benchmark import Case, Options, Result, at_most
from benchmarks.timing import alternate, median, one_thread, paired_ratios
from benchmarks.workloads.growth.row import GrowthRow
from fedblade.api import RunListener
from fedblade.config.schema import Evaluation
from fedblade.core.listener import RoundRecord, RunOverview

_WHAT = "FedAvg with an MLP on made-up tables of 32 columns, {} test samples, one thread, evaluated every round"
_USUAL, _LARGE = _WHAT.format("4,000"), _WHAT.format("10,000")
CLASSES = Case("1,000 classes over 100", f"seconds a round with the default metrics: {_USUAL}", at_most(5))
DISK = Case("file a round, 1,000 classes", f"what diagnostics.jsonl grows by: {_USUAL}", at_most(0.2), "MB")
MEMORY = Case(
    "memory a round, 200 classes", f"what Python and NumPy keep of a round with a run folder: {_USUAL}", at_most(0.05),
    "MB",
)  # fmt: skip
FEATURES = Case(
    "spectrum, 2,048 features over 512", f"seconds of a round beside training, with the metric spectrum: {_LARGE}",
    at_most(16),
)  # fmt: skip
_MEGABYTE = 1e6


@dataclass(frozen=True)
class Tables:
    """A federation of made-up tables with `samples` test samples; 5 of 20 clients in a round."""

    classes: int
    samples: int = 4000
    train_samples: int = 4000
    rounds: int = 3
    features: int = 64
    metrics: tuple[str, ...] = tuple(Evaluation().metrics)

    def run(self, out: Path, listener: RunListener) -> None:
        """One run in a folder."""
        draws = np.random.default_rng(0)
        sizes = self.train_samples, self.samples
        x, x_test = (draws.normal(size=(size, 32)).astype(np.float32) for size in sizes)
        y, y_test = (np.arange(size) % self.classes for size in sizes)
        settings: Mapping[str, Any] = {
            "method": "fedavg", "model": "mlp", "model.dim": self.features, "engine": "sequential", "device": "cpu",
            "num_clients": 20, "clients_per_round": 5, "local.epochs": 1, "rounds": self.rounds,
            "evaluation.metrics": list(self.metrics),
        }  # fmt: skip
        fedblade.run(out=out, dataset=(x, y, x_test, y_test), listener=listener, **settings)

    def seconds_a_round(self) -> float:
        """The median over the rounds after the first, with evaluation and writing."""
        return median(self._clocked().rounds[1:])

    def seconds_beside_training(self) -> float:
        """The same without training."""
        clock = self._clocked()
        return median([whole - training for whole, training in zip(clock.rounds, clock.training, strict=True)][1:])

    def _clocked(self) -> "_Clock":
        clock = _Clock()
        with tempfile.TemporaryDirectory() as folder:
            self.run(Path(folder) / "run", clock)
        return clock


class Side(NamedTuple):
    """A size, and what measures its seconds."""

    size: int
    measure: Callable[[], float]


class _Clock(RunListener):
    """The seconds of every round, and those of its training."""

    def __init__(self) -> None:
        self.rounds: list[float] = []
        self.training: list[float] = []
        self._before = 0.0

    def on_start(self, run: RunOverview, history: list[RoundRecord]) -> None:  # noqa: ARG002
        self._before = time.perf_counter()

    def on_round(self, record: RoundRecord) -> None:
        now = time.perf_counter()
        self.rounds.append(now - self._before)
        self.training.append(record["seconds"])
        self._before = now


class _Memory(RunListener):
    """The bytes that Python and NumPy hold after each round."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def on_round(self, record: RoundRecord) -> None:  # noqa: ARG002
        self.held.append(tracemalloc.get_traced_memory()[0])


def _compared(options: Options, large: Side, small: Side, repetitions: int) -> Result:
    """Seconds of both sizes, taking turns."""
    options.require_cpu()
    with one_thread():
        slow, fast = alternate([large.measure, small.measure], options.repetitions(repetitions))
    ratios = paired_ratios(slow, fast)
    return Result(median(ratios), {f"{large.size} s": median(slow), f"{small.size} s": median(fast)}, ratios)


def measure_classes(options: Options, many: int = 1000, few: int = 100, samples: int = 4000) -> Result:
    """Seconds a round with many classes over those with few."""
    large, small = (Side(classes, Tables(classes, samples).seconds_a_round) for classes in (many, few))
    return _compared(options, large, small, repetitions=5)


def measure_file(options: Options, classes: int = 1000, samples: int = 4000) -> Result:
    """Megabytes that a round adds to `diagnostics.jsonl`."""
    options.require_cpu()
    tables = Tables(classes, samples, rounds=2)
    with tempfile.TemporaryDirectory() as folder, one_thread():
        tables.run(Path(folder) / "run", RunListener())
        size = (Path(folder) / "run" / "diagnostics.jsonl").stat().st_size
    return Result(size / tables.rounds / _MEGABYTE)


def measure_memory(options: Options, classes: int = 200, samples: int = 4000, rounds: int = 12) -> Result:
    """Megabytes that a round leaves in memory, from the third round to the last."""
    options.require_cpu()
    memory = _Memory()
    with tempfile.TemporaryDirectory() as folder, one_thread():
        tracemalloc.start()
        try:
            Tables(classes, samples, rounds=rounds).run(Path(folder) / "run", memory)
        finally:
            tracemalloc.stop()
    return Result((memory.held[-1] - memory.held[2]) / (rounds - 3) / _MEGABYTE)


def measure_features(options: Options, wide: int = 2048, narrow: int = 512, samples: int = 10_000) -> Result:
    """Seconds a round beside training, with wide features over those with narrow ones."""

    def side(width: int) -> Side:
        tables = Tables(10, samples, 1000, rounds=2, features=width, metrics=("accuracy", "spectrum"))
        return Side(width, tables.seconds_beside_training)

    return _compared(options, side(wide), side(narrow), repetitions=3)


ROWS = (
    GrowthRow(CLASSES, measure_classes),
    GrowthRow(DISK, measure_file),
    GrowthRow(MEMORY, measure_memory),
    GrowthRow(FEATURES, measure_features),
)
