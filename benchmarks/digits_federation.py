"""The small federation that engines, a plain loop and other frameworks all train."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from fedblade.config.run_config import RunConfig
from fedblade.runs import Driver, RunListener, Setup, load_config, prepare


@dataclass(frozen=True)
class DigitsFederation:
    """FedAvg on digits: equal clients, all of them in every round, a small CNN, SGD with momentum, one thread."""

    rounds: int = 10
    epochs: int = 1
    clients: int = 20
    batch_size: int = 32
    lr: float = 0.02
    momentum: float = 0.9
    seed: int = 1

    def __str__(self) -> str:
        epochs = f"{self.epochs} epoch{'s' if self.epochs > 1 else ''}"
        return f"{self.rounds} rounds × {epochs}"

    def config(self, engine: str, method: str = "fedavg") -> RunConfig:
        """A run of this federation, evaluated after the last round only."""
        settings = {
            "partition": "iid",
            "method": method,
            "num_clients": self.clients,
            "clients_per_round": self.clients,
            "rounds": self.rounds,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "lr": self.lr,
            "momentum": self.momentum,
            "evaluation.every": self.rounds,
            "evaluation.metrics": ["accuracy"],
            "engine": engine,
            "device": "cpu",
            "seed": self.seed,
        }
        return load_config("quickstart", settings)[0]

    def write(self, folder: Path) -> Path:
        """Write the settings and the data as files that plain PyTorch can read."""
        setup = prepare(self.config("sequential"))
        samples, parts = setup.problem.samples, list(setup.clients.train.parts())
        x, y = samples.batch(torch.arange(len(samples.labels)))
        x_test, y_test = setup.test.batch(setup.test_order)
        arrays = {"x": x.numpy(), "y": y.numpy(), "x_test": x_test.numpy(), "y_test": y_test.numpy()}
        clients = {"order": np.concatenate(parts), "sizes": np.array([len(part) for part in parts])}
        np.savez(folder / "data.npz", allow_pickle=False, **arrays, **clients)
        (folder / "federation.json").write_text(json.dumps(asdict(self)), encoding="utf-8")
        return folder


def drive(setup: Setup) -> Driver:
    """A run from the first round to the last, without files."""
    driver = Driver(setup, None, RunListener())
    driver.run()
    return driver


def training_seconds(setup: Setup) -> Callable[[], float]:
    """A side to time: the seconds of all rounds of a run, without evaluation."""
    return lambda: sum(record["seconds"] for record in drive(setup).history)
