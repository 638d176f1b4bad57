"""Rounds of the FedBlade setting in a fresh process; started by the benchmark `cifar`."""

import sys
import time
from itertools import pairwise
from pathlib import Path

from fedblade.bench._child import report
from fedblade.bench.cifar import setting
from fedblade.config.overrides import parse_assignment
from fedblade.runs import Driver, RoundRecord, RunListener, prepare


class Rounds(RunListener):
    """Reports, at the end of every round, the time of that moment and the seconds of training."""

    def __init__(self, folder: Path, began: float) -> None:
        self._folder, self._began = folder, began
        self._ends: list[float] = []
        self._seconds: list[float] = []

    def on_round(self, row: RoundRecord) -> None:
        """Add the round to what is reported."""
        self._ends.append(time.time())
        self._seconds.append(row["seconds"])
        later = [after - before for before, after in pairwise(self._ends)]
        report(self._folder, first=self._ends[0] - self._began, later=later, seconds=self._seconds)


def main(folder: Path, began: float, rounds: int, method: str, engine: str, assignments: list[str]) -> None:
    """Report the seconds from `began` (a clock's time) to the end of the first round, and of each later round.

    The stacked engine evaluates every round, because that is part of its pace; the other at the end alone.
    """
    every = {"evaluation.every": 1} if engine == "stacked" else {}
    changes = dict(parse_assignment(each) for each in assignments)
    config = setting(rounds, method, engine, {**changes, **every})
    Driver(prepare(config), None, Rounds(folder, began)).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5], sys.argv[6:])
