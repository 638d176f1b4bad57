"""A small federation in float64 (K=4, C=5, d=16) that the suites train on, and ways to compare what comes out."""

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset as TorchDataset

from fedblade.config.overrides import apply_overrides
from fedblade.config.run_config import RunConfig, complete_config
from fedblade.core.method import Method
from fedblade.core.plan import ClientTask
from fedblade.core.registry import Entry
from fedblade.core.state import ServerState
from fedblade.data import Dataset, Part, as_dataset
from fedblade.methods import Composition
from fedblade.results import RunDirectory
from fedblade.runs import Driver, RoundRecord, RunListener, Setup, prepare

NUM_CLASSES, NUM_CLIENTS, DIM = 5, 4, 16

TABLES: dict[str, Any] = {
    "id": "small",
    "seed": 3,
    "device": "cpu",
    "dtype": "float64",
    "engine": "sequential",
    "dataset": {"name": "object"},
    "partition": {"name": "dirichlet", "alpha": 0.3, "min_size": 6},
    "federation": {"num_clients": NUM_CLIENTS, "clients_per_round": NUM_CLIENTS, "rounds": 2},
    "model": {"name": "mlp", "hidden": [10], "dim": DIM},
    "local": {"epochs": 2, "batch_size": 8},
    "optimizer": {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3},
    "method": {"name": "fedavg"},
    "evaluation": {"metrics": ["accuracy"]},
}
BATCH_NORM = {"model.norm": "batch"}
CNN = {"model": "small_cnn", "model.dim": DIM}


def vectors(train: int = 150, test: int = 40, seed: int = 0) -> Dataset:
    """Noisy points around one centre per class, in 6 dimensions."""
    return _noisy_classes((6,), train, test, seed)


def images(train: int = 100, test: int = 30, seed: int = 0) -> Dataset:
    """Noisy 8×8 pictures around one picture per class."""
    return _noisy_classes((1, 8, 8), train, test, seed)


class Noisy(TorchDataset[Any]):
    """Samples with labels 10, 20, … and with noise that is drawn at each reading."""

    def __init__(self, part: Part) -> None:
        self.part = part

    def __len__(self) -> int:
        return len(self.part)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        x = self.part.inputs[i]
        return x + np.random.normal(size=x.shape), 10 * int(self.part.labels[i]) + 10


def read_anew(plain: Dataset) -> Dataset:
    """The samples as torch datasets with random transforms."""
    return as_dataset((Noisy(plain.train), Noisy(plain.test)))


def _noisy_classes(shape: tuple[int, ...], train: int, test: int, seed: int) -> Dataset:
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((NUM_CLASSES, *shape))
    labels = np.arange(train + test) % NUM_CLASSES
    inputs = centres[labels] + generator.standard_normal((len(labels), *shape))
    return as_dataset((inputs[:train], labels[:train], inputs[train:], labels[train:]))


def configure(method: str | Method = "fedavg", **overrides: Any) -> RunConfig:
    """The small federation's configuration; keys as in `fedblade.run`, `method` a name or a value."""
    name = method if isinstance(method, str) else "fedavg"
    config = complete_config(apply_overrides(copy.deepcopy(TABLES), {"method": name, **overrides}))
    if isinstance(method, str):
        return config
    return replace(config, method=Composition("value", Entry("value", lambda: method), ()), method_knobs={})


def build(method: str | Method = "fedavg", data: Dataset | None = None, **overrides: Any) -> Setup:
    """A run ready to start."""
    return prepare(configure(method, **overrides), vectors() if data is None else data)


@dataclass(frozen=True)
class Ran:
    """A finished run with its insides."""

    setup: Setup
    driver: Driver

    @property
    def state(self) -> ServerState:
        return self.driver.state

    @property
    def history(self) -> list[RoundRecord]:
        """Rows without the clock."""
        return [{key: value for key, value in row.items() if "seconds" not in key} for row in self.driver.history]


def train(
    method: str | Method = "fedavg",
    data: Dataset | None = None,
    directory: RunDirectory | None = None,
    **overrides: Any,
) -> Ran:
    """Run the small federation to its end."""
    setup = build(method, data, **overrides)
    driver = Driver(setup, directory, RunListener())
    driver.run()
    return Ran(setup, driver)


def tasks(setup: Setup, round_: int = 0) -> list[ClientTask]:
    """What the clients of a round are asked to do."""
    return [setup.planner.task(round_, int(client)) for client in setup.cohorts[round_]]


def assert_same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    """Same names, types and numbers."""
    assert a.keys() == b.keys()
    for name, leaf in a.items():
        assert leaf.dtype == b[name].dtype, name
        assert torch.equal(leaf, b[name]), f"{name} differs by {(leaf.double() - b[name].double()).abs().max():.1e}"


def assert_close(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], tolerance: float) -> None:
    """Same names, and numbers that differ by at most `tolerance`."""
    assert a.keys() == b.keys()
    for name, leaf in a.items():
        torch.testing.assert_close(
            leaf, b[name], atol=tolerance, rtol=0, check_dtype=False, msg=lambda m, n=name: f"{n}: {m}"
        )


def assert_same_run(a: Ran, b: Ran) -> None:
    """Bit-identical weights, buffers and histories."""
    assert_same_bits(a.state.params, b.state.params)
    assert_same_bits(a.state.buffers, b.state.buffers)
    assert a.history == b.history


def assert_different(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    """At least one tensor differs: the counterpart that keeps equality tests honest."""
    assert a.keys() == b.keys()
    assert any(not torch.equal(leaf, b[name]) for name, leaf in a.items())
