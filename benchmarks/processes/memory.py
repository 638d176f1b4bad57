"""A run over a given population, and its largest resident memory; started by the benchmark `memory`."""

import resource
import sys
from pathlib import Path
from typing import Any

from benchmarks.fresh_process import write_result
from fedblade.runs import execute, load_config

_STATUS = Path("/proc/self/status")


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
    write_result(folder, mebibytes=peak_mebibytes(), round_seconds=[record["seconds"] for record in history])


def peak_mebibytes() -> float:
    """The largest resident memory of this process so far.

    On Linux the process status has it; `getrusage` would also count the process that this one was forked from.
    """
    if _STATUS.is_file():
        for line in _STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
