"""Rounds of the FedBlade setting; started by the benchmark `cifar`."""

import sys
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.fresh_process import write_result
from benchmarks.workloads.cifar import setting
from fedblade.config.overrides import parse_assignment
from fedblade.runs import Driver, RoundRecord, RunListener, prepare


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
        write_result(self._folder, first=self._ends[0] - self._began, later=later, seconds=self._seconds)


def main(folder: Path, began: float, rounds: int, method: str, engine: str, assignments: list[str]) -> None:
    """Measure the seconds from `began` (a clock time) to the end of the first round, and those of every later round.

    The stacked engine evaluates in every round, because users wait for that too; the sequential engine only once.
    """
    every = {"evaluation.every": 1} if engine == "stacked" else {}
    changes = dict(parse_assignment(assignment) for assignment in assignments)
    config = setting(rounds, method, engine, {**changes, **every})
    Driver(prepare(config), None, Rounds(folder, began)).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5], sys.argv[6:])
