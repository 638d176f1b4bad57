"""The whole of a digits run with this library, imports excluded; started by the benchmarks against other frameworks."""

import sys
import time
from pathlib import Path

import sklearn.datasets  # noqa: F401

from fedblade.bench import _plain
from fedblade.bench._child import report
from fedblade.bench._workload import Workload, drive
from fedblade.core.registry import datasets, engines, methods, models, partitions
from fedblade.runs import prepare


def main(folder: Path) -> None:
    """Data, partition, model, rounds and the evaluation at the end, all on the clock."""
    work = Workload(**_plain.settings(folder))
    for registry in (datasets, engines, methods, models, partitions):
        registry.names()
    began = time.perf_counter()
    history = drive(prepare(work.config("stacked"))).history
    seconds = time.perf_counter() - began
    report(
        folder,
        seconds=seconds,
        accuracy=history[-1]["test_accuracy"],
        round_seconds=[row["seconds"] for row in history],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
