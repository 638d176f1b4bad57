"""A whole run on digits with this library, without imports; started by `flower` and `pfl`."""

import sys
import time
from pathlib import Path

from benchmarks import plain_pytorch
from benchmarks.digits_federation import DigitsFederation, drive
from benchmarks.fresh_process import write_result
from fedblade.core.registry import datasets, engines, methods, models, partitions
from fedblade.runs import prepare


def main(folder: Path) -> None:
    """Time data, partition, model, rounds and the evaluation at the end."""
    federation = DigitsFederation(**plain_pytorch.read_settings(folder))
    for registry in (datasets, engines, methods, models, partitions):
        registry.names()
    began = time.perf_counter()
    history = drive(prepare(federation.config("stacked"))).history
    seconds = time.perf_counter() - began
    write_result(
        folder,
        seconds=seconds,
        accuracy=history[-1]["test_accuracy"],
        round_seconds=[record["seconds"] for record in history],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
