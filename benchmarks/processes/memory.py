"""A run over a given population, and its largest resident memory; started by the benchmark `memory`."""

import sys
from pathlib import Path
from typing import Any

from benchmarks.fresh_process import write_result
from fedblade.core.machine import peak_memory
from fedblade.runs import execute, load_config


def main(folder: Path, population: int, per_round: int, rounds: int) -> None:
    """Train Scaffold on digits: every client that has trained has a control variate as large as the model, on disk."""
    settings: dict[str, Any] = {
        "partition": "drawn",
        "method": "scaffold",
        "num_clients": population,
        "clients_per_round": per_round,
        "rounds": rounds,
        "epochs": 1,
        "evaluation.every": rounds,
        "checkpoint.keep": 1,
        "engine": "stacked",
        "device": "cpu",
    }
    history = execute(load_config("quickstart", settings)[0], out=folder / f"run-{population}").history
    write_result(
        folder, mebibytes=(peak_memory() or 0) / 2**20, round_seconds=[record["seconds"] for record in history]
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
