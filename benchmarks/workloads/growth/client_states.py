"""Many clients that keep a state on disk: SCAFFOLD over FedAvg, and how often a round waits for the disk."""

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import fedblade
from benchmarks.benchmark import Case, Options, Result, at_most
from benchmarks.timing import alternate, median, one_thread, paired_ratios
from benchmarks.workloads.growth.row import GrowthRow
from fedblade.core.listener import RoundRecord, RunListener

MOST_WAITS = 10
CASE = Case(
    "SCAFFOLD over FedAvg, on disk",
    "seconds of the rounds after the first, both methods stacked, with a run folder and a checkpoint after every "
    f"round: 1,000 clients with 20 pictures of 8 × 8 pixels, small CNN, 3 epochs; at most {MOST_WAITS} calls of fsync "
    "a round",
    at_most(1.5),
)
_SETTINGS: Mapping[str, Any] = {
    "model": "small_cnn", "model.dim": 32, "partition": "iid", "epochs": 3, "batch_size": 20, "lr": 0.02,
    "checkpoint.every": 1, "evaluation.metrics": ["accuracy"], "engine": "stacked", "device": "cpu",
}  # fmt: skip


def measure(options: Options, clients: int = 1000, rounds: int = 3, repetitions: int = 3) -> Result:
    """Both methods in turns; the note has the largest number of calls of fsync in a round."""
    options.require_cpu()
    waits, pictures = list[int](), _pictures(clients)

    def side(method: str) -> float:
        with tempfile.TemporaryDirectory() as folder, counted_fsyncs() as count:
            watch = _Rounds(count)
            sizes = {"num_clients": clients, "clients_per_round": clients, "rounds": rounds}
            settings = {**_SETTINGS, **sizes, "method": method, "dataset": pictures}
            fedblade.run("quickstart", out=Path(folder) / "run", listener=watch, **settings)
        waits.extend(watch.waits if method == "scaffold" else [])
        return sum(watch.seconds[1:])

    sides = [lambda: side("scaffold"), lambda: side("fedavg")]
    with one_thread():
        scaffold, fedavg = alternate(sides, options.repetitions(repetitions))
    ratios = paired_ratios(scaffold, fedavg)
    later = rounds - 1
    medians = {"SCAFFOLD s/round": median(scaffold) / later, "FedAvg s/round": median(fedavg) / later}
    note = f"{max(waits)} calls of fsync a round" + ("" if max(waits) <= MOST_WAITS else ", which is too many")
    return Result(median(ratios), medians, ratios, note)


@contextmanager
def counted_fsyncs() -> Iterator[Sequence[Any]]:
    """One entry for each call of fsync in this process."""
    calls: list[Any] = []
    fsync = os.fsync

    def counted(fd: Any) -> None:
        calls.append(fd)
        fsync(fd)

    os.fsync = counted
    try:
        yield calls
    finally:
        os.fsync = fsync


class _Rounds(RunListener):
    """The seconds and the calls of fsync of every round."""

    def __init__(self, calls: Sequence[Any]) -> None:
        self._calls = calls
        self.seconds: list[float] = []
        self.waits: list[int] = []

    def on_start(self, run: Any, history: Sequence[RoundRecord]) -> None:  # noqa: ARG002
        """The first round begins."""
        self._begin()

    def on_round(self, record: RoundRecord) -> None:  # noqa: ARG002
        """A round ends and the next one begins."""
        self.seconds.append(time.perf_counter() - self._began)
        self.waits.append(len(self._calls) - self._before)
        self._begin()

    def _begin(self) -> None:
        self._began, self._before = time.perf_counter(), len(self._calls)


def _pictures(clients: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Random pictures, 20 for each client, and a few to test with."""
    pictures = np.random.default_rng(0).random((20 * clients, 1, 8, 8), dtype=np.float32)
    labels = np.arange(len(pictures)) % 10
    return pictures, labels, pictures[:100], labels[:100]


ROWS = (GrowthRow(CASE, measure),)
