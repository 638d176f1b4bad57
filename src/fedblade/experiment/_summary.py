"""What is written about a run beside its history: the summary and the partition."""

import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fedblade import protocols
from fedblade._version import __version__
from fedblade.core.errors import Misconfigured
from fedblade.experiment._directory import PARTITION, RunDirectory
from fedblade.experiment._driver import Row
from fedblade.experiment._setup import Setup

_MAX_TABLE_CELLS = 1_000_000
_SHOULD_BE_ZERO = ("count_cholesky_failures", "count_scale_clamped")
"""Health counters that stay at zero in a normal run (EC-9, EC-10)."""


def summarise(setup: Setup, history: list[Row], status: str) -> dict[str, Any]:
    """The contents of `summary.json`."""
    config = setup.config
    return {
        "method": config.method.name,
        "dataset": setup.dataset.name,
        "partition": config.partition.name,
        "model": config.model.name,
        "engine": setup.engine.name,
        "device": str(setup.test_order.device),
        "seed": config.general.seed,
        "rounds": len(history),
        "protocol": config.evaluation.protocol,
        "accuracy": protocols.headline(history, config.evaluation.protocol),
        "final_accuracy": protocols.final(history),
        "last10_accuracy": protocols.last_mean(history, 10),
        "best_accuracy": protocols.best(history),
        "accuracy_of": setup.method.accuracy_of,
        **_personal(history),
        "evaluated_on": config.evaluation.on,
        "seconds": sum(row["seconds"] for row in history),
        "bytes_up": sum(row["bytes_up"] for row in history),
        "bytes_down": sum(row["bytes_down"] for row in history),
        "flags": flags(history),
        "versions": {
            "fedblade": __version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "status": status,
    }


def _personal(history: list[Row]) -> dict[str, float]:
    """The last accuracy of the clients' own models on their own test samples, where it was measured."""
    values = [row["personal_accuracy"] for row in history if "personal_accuracy" in row]
    return {"personal_accuracy": values[-1]} if values else {}


def flags(history: list[Row]) -> list[str]:
    """Health counters that are not zero although they should be."""
    totals = {name: sum(row.get(name, 0) for row in history) for name in _SHOULD_BE_ZERO}
    return [f"{name} = {total}" for name, total in totals.items() if total]


def record_partition(directory: RunDirectory, setup: Setup) -> None:
    """Write `partition.json`; a resumed run must find the same split and the same data."""
    split = setup.clients.train
    digests = {"digest": split.digest(), "data": setup.dataset.digest()}
    if directory.read_json(PARTITION) is not None:
        check_partition(directory, digests)
        return
    small = split.num_clients * split.num_classes <= _MAX_TABLE_CELLS
    facts = {"draws": split.draws, "class_names": setup.dataset.class_names}
    counts = {"counts": split.table().tolist() if small else None}
    directory.write_json(PARTITION, {"name": setup.config.partition.name} | digests | facts | counts)


def check_partition(directory: RunDirectory, digests: Mapping[str, str]) -> None:
    """Refuse to go on with data or a split other than those the run was started with."""
    known = directory.read_json(PARTITION) or {}
    for key, what in (("data", "the data set"), ("digest", "the split of the data")):
        if key in digests and known.get(key) != digests[key]:
            raise Misconfigured(
                f"{what} differs from what '{directory.path}' was started with. "
                f"Resume with the same data, or choose another --out."
            )
