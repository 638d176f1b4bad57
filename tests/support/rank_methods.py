"""Started by torchrun: every registered method, shared out over the ranks, against one process from the same start.

Arguments: a folder for the runs and the file of the findings, a line per method and order.
"""

import json
import sys
from pathlib import Path

import torch

from fedblade.core.registry import methods
from fedblade.core.tensorfile import read_tensors
from fedblade.results import RunDirectory
from fedblade.runs import Driver, RunJob, RunListener, prepare
from fedblade.runs.distributed import join_ranks
from support.small_federation import BATCH_NORM, TABLES, configure, vectors

KNOBS = {
    "ccvr": {"method.epochs": 2},
    "fedgen": {"hid": 8, "nz": 3, "n_it": 2},
    "moon": {"mlp": True, "mlp_width": 6},
    "stdecov": {"groups": 4},
}
"""Where the defaults are for models that are larger."""
ROUNDS = 2
MET = ["accuracy", "drift", "feature_drift", "local_spectrum"]
SETTING = BATCH_NORM | {
    "num_clients": 6, "partition.min_size": 4, "epochs": 1, "metrics": MET, "lr": 0.01, "rounds": ROUNDS,
}  # fmt: skip


class Counting(RunListener):
    """Remembers which clients were reported."""

    def __init__(self):
        self.clients = []

    def on_client(self, round_, client):
        self.clients.append(client)


def one_process(config, folder):
    """The reference; under torchrun a run without ranks is refused, so it is driven by hand."""
    directory = RunDirectory(folder)
    directory.open(resume=False)
    driver = Driver(prepare(config, vectors()), directory, RunListener())
    driver.run()
    directory.close()
    return driver.history


def untimed(history):
    return [{key: value for key, value in row.items() if "seconds" not in key} for row in history]


def state_of(folder, rounds):
    return read_tensors(folder / "checkpoints" / f"round-{rounds:06d}.safetensors")[0]


def farthest(found, expected):
    """The largest difference relative to 1 + |x|."""
    assert found.keys() == expected.keys()
    pairs = [(found[name].double(), leaf.double()) for name, leaf in expected.items() if leaf.numel()]
    return max(float(((mine - leaf).abs() / (1 + leaf.abs())).max()) for mine, leaf in pairs)


def compare(name, cohort, folder, ranks):
    """Both orders against one process, which adds in ascending id."""
    own = {"clients_per_round": cohort, **SETTING, **KNOBS.get(name, {})}
    history = one_process(configure(name, **own), folder / "alone") if ranks.is_rank_0 else []
    for order, store in (("any", "shared"), ("fixed", "rank")):
        listener, shared = Counting(), {"distributed.order": order, "distributed.store": store}
        config = configure(name, **own, **shared)
        result = RunJob(config, folder / order, dataset=vectors(), ranks=ranks, listener=listener).execute()
        if not ranks.is_rank_0:
            continue
        states = [[state_of(folder / kind, round_) for kind in (order, "alone")] for round_ in (1, ROUNDS)]
        yield {
            "method": name,
            "order": order,
            "farthest": [farthest(*pair) for pair in states],
            "same_bits": all(torch.equal(mine[key], leaf) for mine, theirs in states for key, leaf in theirs.items()),
            "same_history": untimed(result.history) == untimed(history),
            "all_reported": sorted(listener.clients) == sorted(c for row in history for c in row["clients"]),
        }


def main(folder, cohort, chosen):
    ranks = join_ranks()
    found = [row for name in chosen or methods.names() for row in compare(name, cohort, folder / name, ranks)]
    if ranks.is_rank_0:
        (folder / "findings.json").write_text(json.dumps(found))


if __name__ == "__main__":
    assert TABLES["dtype"] == "float64"
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
