"""The federation on digits in plain PyTorch: the loop that people write first, and the network for other frameworks.

This module imports torch and numpy only, because worker processes of other frameworks import it while they are timed.
"""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

Client = tuple[Tensor, Tensor]
State = dict[str, Tensor]


class Net(nn.Module):
    """The quickstart's CNN as one module: two convolution stages, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, 10] of images [batch, 1, 8, 8]."""
        logits: Tensor = self.layers(x)
        return logits


def new_net(seed: int) -> Net:
    """A network with initial weights that depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Net()


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings of the federation."""
    stored: dict[str, Any] = json.loads((folder / "federation.json").read_text(encoding="utf-8"))
    return stored


def read_data(folder: Path) -> tuple[list[Client], Client]:
    """The clients' data and the test data."""
    with np.load(folder / "data.npz") as stored:
        data = {name: torch.from_numpy(stored[name]) for name in stored.files}
    parts = torch.split(data["order"], data["sizes"].tolist())
    return [(data["x"][part], data["y"][part]) for part in parts], (data["x_test"], data["y_test"])


def train(net: Net, client: Client, settings: dict[str, Any]) -> None:
    """Local SGD over shuffled minibatches."""
    optimizer = torch.optim.SGD(net.parameters(), lr=settings["lr"], momentum=settings["momentum"])
    batches = DataLoader(TensorDataset(*client), settings["batch_size"], shuffle=True)
    net.train()
    for _ in range(settings["epochs"]):
        for x, y in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def federated_round(net: Net, clients: list[Client], settings: dict[str, Any]) -> None:
    """FedAvg as a plain loop: copy the model for every client, train it, average the state dicts by samples."""
    states: list[State] = []
    for client in clients:
        local = copy.deepcopy(net)
        train(local, client, settings)
        states.append(local.state_dict())
    sizes = [len(y) for _, y in clients]
    net.load_state_dict(average(states, sizes))


def average(states: list[State], sizes: list[int]) -> State:
    """The mean of state dicts, weighted by samples; counters are taken from the first."""
    total = sum(sizes)
    return {
        name: sum((state[name] * (size / total) for state, size in zip(states, sizes, strict=True)), start=0.0 * leaf)
        if leaf.is_floating_point()
        else leaf
        for name, leaf in states[0].items()
    }


@torch.no_grad()
def accuracy(net: Net, test: Client) -> float:
    """Percent of the test samples that are classified right."""
    net.eval()
    x, y = test
    return 100 * float((net(x).argmax(1) == y).float().mean())
