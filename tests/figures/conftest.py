"""Tiny runs on digits through the whole pipeline, made once: cells of presets of papers, and runs with every metric."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedblade.config.overrides import apply_overrides
from fedblade.config.run_config import complete_config
from fedblade.core.registry import metrics
from fedblade.presets.catalogue import load_grid
from fedblade.runs import execute, run
from support.figure_runs import make_run

__all__ = ["make_run"]

ROUNDS = 3
SMALL = {
    "model": "mlp",
    "model.hidden": [24],
    "model.dim": 16,
    "federation.clients_per_round": 4,
    "federation.rounds": ROUNDS,
    "local.epochs": 1,
    "optimizer.lr": 0.05,
}
# Presets, and which of their cells are run: all but those that would repeat others on another data set or population.
CHOSEN: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "fd-f4": lambda cell: True,
    "fb-f2": lambda cell: cell["dataset"]["name"] == "cifar100",
    "fb-f4": lambda cell: cell["dataset"]["name"] == "cifar100" and cell["partition"]["alpha"] in (0.05, 0.5),
    "fe-f5": lambda cell: True,
    "fg-f5": lambda cell: cell["federation"]["num_clients"] == 10,
    "fr-f5": lambda cell: True,
}


@pytest.fixture(scope="session")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder per preset with its cells, each on digits and small, and with the metrics that the preset asks for."""
    root = tmp_path_factory.mktemp("papers")
    for preset, wanted in CHOSEN.items():
        cells = [cell for cell in load_grid(preset).cells if not cell.unusual and wanted(cell.config)]
        for index, cell in enumerate(cells):
            config = apply_overrides(on_digits(cell.config), SMALL | {"seed": 1})
            execute(complete_config(config), out=root / preset / f"{index:02d}")
    return root


def on_digits(config: Mapping[str, Any]) -> dict[str, Any]:
    """The cell with another data set of ten classes, split over ten clients."""
    own = copy.deepcopy(dict(config))
    own["dataset"] |= {"name": "digits", "augment": "none"}
    own["federation"]["num_clients"] = 10
    del own["model"]
    if "shards_per_client" in own["partition"]:
        own["partition"]["shards_per_client"] = 2
    return own


@pytest.fixture(scope="session")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two methods with every metric there is, and with clients' own models."""
    root = tmp_path_factory.mktemp("complete")
    for method in ("fedavg", "fedetf"):
        chosen: dict[str, Any] = {
            "method": method,
            "partition": "stochastic_removal",
            "partition.shards_per_client": 3,
            "federation.num_clients": 8,
            "dataset.test_split": "proportional",
            "evaluation.protocol": "gapa",
            "evaluation.metrics": list(metrics.names()),
        }
        run(out=root / method, **(SMALL | chosen))
    return root
