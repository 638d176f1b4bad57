"""The federation on digits in Flower's simulation, without the imports of this process; started by `flower`.

Clients rebuild the network, load the weights they receive, train and answer, as Flower's PyTorch quickstart does. A
worker of Ray reads the data from a file once and imports nothing but torch, numpy and Flower.
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

from benchmarks import plain_pytorch

_FOLDER = "FEDBLADE_BENCH_FOLDER"
client_app, server_app = ClientApp(), ServerApp()


@functools.cache
def _loaded() -> tuple[dict[str, Any], list[plain_pytorch.Client], plain_pytorch.Client]:
    torch.set_num_threads(1)
    folder = Path(os.environ[_FOLDER])
    return plain_pytorch.read_settings(folder), *plain_pytorch.read_data(folder)


@client_app.train()  # type: ignore[untyped-decorator]
def train(message: Message, context: Context) -> Message:
    """Train one client and answer with its weights."""
    settings, clients, _ = _loaded()
    client = clients[int(context.node_config["partition-id"])]
    net = plain_pytorch.Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    plain_pytorch.train(net, client, settings)
    answer = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": len(client[1])})}
    return Message(content=RecordDict(answer), reply_to=message)


@server_app.main()  # type: ignore[untyped-decorator]
def serve(grid: Grid, _context: Context) -> None:
    """Run all rounds of federated averaging and measure the accuracy at the end."""
    settings, clients, test = _loaded()
    net = plain_pytorch.new_net(settings["seed"])
    while len(list(grid.get_node_ids())) < len(clients):
        time.sleep(0.01)
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_evaluate_nodes=0, min_train_nodes=len(clients))
    result = strategy.start(
        grid=grid, initial_arrays=ArrayRecord(net.state_dict()), num_rounds=settings["rounds"], timeout=600
    )
    net.load_state_dict(result.arrays.to_torch_state_dict())
    _reached["accuracy"] = plain_pytorch.accuracy(net, test)


_reached: dict[str, float] = {}


def main(folder: Path) -> None:
    """Time the start of Ray, all rounds and the end of Ray."""
    os.environ[_FOLDER] = str(folder)
    backend = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2, "logging_level": 50}}
    num_clients = plain_pytorch.read_settings(folder)["clients"]
    began = time.perf_counter()
    run_simulation(server_app, client_app, num_supernodes=num_clients, backend_config=backend)
    seconds = time.perf_counter() - began
    (folder / "result.json").write_text(json.dumps({"seconds": seconds, **_reached}), encoding="utf-8")


if __name__ == "__main__":
    # Ray's workers import the apps by the name of this module, which is `__main__` in this process only.
    from benchmarks.processes import flower_simulation

    flower_simulation.main(Path(sys.argv[1]))
