"""The digits workload through Flower's own simulation, imports of this process excluded.

Clients rebuild the network, load the weights they receive, train and answer, as Flower's PyTorch quickstart does. Ray's
workers read the data from a file once each and import nothing but torch, numpy and Flower.
"""

import functools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from fedblade.bench import _plain

_FOLDER = "FEDBLADE_BENCH_FOLDER"
client_app, server_app = ClientApp(), ServerApp()


@functools.cache
def _loaded() -> tuple[dict[str, Any], list[_plain.Client], _plain.Client]:
    torch.set_num_threads(1)
    folder = Path(os.environ[_FOLDER])
    return _plain.settings(folder), *_plain.read(folder)


@client_app.train()  # type: ignore[untyped-decorator]
def train(message: Message, context: Context) -> Message:
    """Train one client and answer with its weights."""
    work, clients, _ = _loaded()
    client = clients[int(context.node_config["partition-id"])]
    net = _plain.Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    _plain.train(net, client, work)
    answer = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": len(client[1])})}
    return Message(content=RecordDict(answer), reply_to=message)


@server_app.main()  # type: ignore[untyped-decorator]
def serve(grid: Grid, _context: Context) -> None:
    """All rounds of federated averaging, and the accuracy at the end."""
    work, clients, test = _loaded()
    net = _plain.new_net(work["seed"])
    while len(list(grid.get_node_ids())) < len(clients):
        time.sleep(0.01)
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_evaluate_nodes=0, min_train_nodes=len(clients))
    result = strategy.start(
        grid=grid, initial_arrays=ArrayRecord(net.state_dict()), num_rounds=work["rounds"], timeout=600
    )
    net.load_state_dict(result.arrays.to_torch_state_dict())
    _found["accuracy"] = _plain.accuracy(net, test)


_found: dict[str, float] = {}


def main(folder: Path) -> None:
    """Start Ray, run all rounds and stop; all of it is on the clock."""
    os.environ[_FOLDER] = str(folder)
    backend = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2, "logging_level": 50}}
    began = time.perf_counter()
    run_simulation(server_app, client_app, num_supernodes=_plain.settings(folder)["clients"], backend_config=backend)
    seconds = time.perf_counter() - began
    (folder / "result.json").write_text(json.dumps({"seconds": seconds, **_found}), encoding="utf-8")


if __name__ == "__main__":
    # Ray's workers look the apps up by module, and this file's own name is not `__main__` for them.
    from fedblade.bench import _flower_run

    _flower_run.main(Path(sys.argv[1]))
