"""Rounds of the FedBlade setting; started by the benchmarks `cifar`, `cifar200`, `resnet18` and `state`."""

import sys
import time
from itertools import pairwise
from pathlib import Path

import torch

from benchmarks.fresh_process import write_result
from benchmarks.workloads.cifar import setting
from fedblade.config.overrides import parse_assignment
from fedblade.runs import RoundRecord, RunListener, execute


class Rounds(RunListener):
    """After every round, writes how long the rounds took so far, with and without evaluation."""

    def __init__(self, folder: Path, began: float) -> None:
        self._folder, self._began = folder, began
        self._ends: list[float] = []
        self._seconds: list[float] = []

    def on_round(self, record: RoundRecord) -> None:
        """Add the round to the result."""
        self._ends.append(time.time())
        self._seconds.append(record["seconds"])
        later = [after - before for before, after in pairwise(self._ends)]
        first, peak = self._ends[0] - self._began, peak_gib()
        write_result(self._folder, first=first, later=later, seconds=self._seconds, peak_gib=peak)


def peak_gib() -> float | None:
    """The largest memory that tensors took on the GPU so far; None without a GPU."""
    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None


def main(folder: Path, began: float, rounds: int, cell: list[str], assignments: list[str]) -> None:
    """Measure the seconds from `began` (a clock time) to the end of the first round, and those of every later round.

    `cell` is the method, the engine and the split. The run has a folder, as the runs of users have. The stacked engine
    evaluates in every round, because users wait for that too; the sequential engine only once.
    """
    method, engine, split = cell
    every = {"evaluation.every": 1} if engine == "stacked" else {}
    changes = dict(parse_assignment(assignment) for assignment in assignments)
    config = setting(rounds, method, engine, split, {**changes, **every})
    execute(config, out=folder / "run", listener=Rounds(folder, began))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:7], sys.argv[7:])
