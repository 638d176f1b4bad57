"""Rounds of a heavy model, in one process or in the processes of `torchrun`; started by `scaling`."""

import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.fresh_process import write_result
from fedblade.runs import RunJob, load_config
from fedblade.runs.distributed import join_ranks

_CORES = 2


def main(folder: Path, model: str, clients: int, rounds: int) -> None:
    """Train equal clients, all of them in every round; a rank trains its clients one after another."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:_CORES])
    settings: dict[str, Any] = {
        "partition": "iid",
        "model": model,
        "method": "fedavg",
        "num_clients": clients,
        "clients_per_round": clients,
        "rounds": rounds,
        "epochs": 1,
        "evaluation.every": rounds,
        "evaluation.metrics": ["accuracy"],
        "engine": "sequential",
        "device": "cpu",
    }
    ranks = join_ranks()
    result = RunJob(load_config("quickstart", settings)[0], ranks=ranks).execute()
    if ranks is None or ranks.is_rank_0:
        seconds = [record["seconds"] for record in result.history]
        write_result(folder, round_seconds=seconds[1:] or seconds, accuracy=result.summary["final_accuracy"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:5]))
