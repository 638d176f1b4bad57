"""What is written about a run beside its history: the summary and the partition."""

import platform
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import nn

from fedblade import protocols
from fedblade._version import __version__
from fedblade.partitions import MOST_DRAWN, Reported, hardness
from fedblade.results import PARTITION, RunDirectory
from fedblade.runs._driver import RoundRecord
from fedblade.runs._given_module import module_digests
from fedblade.runs._personal import spread
from fedblade.runs._reuse import check_started, sources_of
from fedblade.runs._revisions import Revisions, revisions_of, without_partition
from fedblade.runs._setup import Setup
from fedblade.runs._untrained import untrained_rounds

CHECKOUT = Path(__file__).resolve().parents[3]
"""Where the library's repository is, if it runs from one."""
_MAX_TABLE_CELLS = 1_000_000
_SHOULD_BE_ZERO = ("count_cholesky_failures", "count_scale_clamped")
"""Health counters that stay at zero in a normal run."""


def summarise(
    setup: Setup, history: list[RoundRecord], status: str, clients: Sequence[RoundRecord] = ()
) -> dict[str, Any]:
    """The contents of `summary.json`; `clients` are the rows of the clients' own models at the end of the run.

    Where a method ends the run with exchanges (`calibrated`), `accuracy` and `final_accuracy` are those of the model
    they leave, which is the one that is saved; `last10_accuracy` and `best_accuracy` are of the models of the rounds,
    before them. `seconds` does not count them, `exchange_seconds` does.
    """
    config, protocol, commit = setup.config, setup.config.evaluation.protocol, _commit(CHECKOUT / ".git")
    personal = _personal(protocol, history, clients)
    printed = {"ft": "personal_accuracy", "gapa": "general_accuracy"}.get(protocol)
    return {
        "method": config.method.name,
        "dataset": setup.dataset.name,
        "pictures": pictures(setup),
        "partition": config.partition.name,
        "model": config.model.name,
        "engine": setup.engine.name,
        "device": str(setup.test_order.device),
        "seed": config.general.seed,
        "rounds": len(history),
        "protocol": protocol,
        "accuracy": personal.get(printed) if printed else protocols.headline(history, protocol),
        "calibrated": protocols.is_calibrated(history),
        "final_accuracy": protocols.headline(history, "final"),
        "last10_accuracy": protocols.last_mean(history, 10),
        "rounds_evaluated": len(protocols.accuracies(history)),
        "best_accuracy": protocols.best(history),
        "accuracy_of": setup.method.accuracy_of,
        **personal,
        "evaluated_on": config.evaluation.on,
        "seconds": sum(row["seconds"] for row in history),
        **_last(history, "exchange_seconds"),
        "bytes_up": sum(row["bytes_up"] for row in history),
        "bytes_down": sum(row["bytes_down"] for row in history),
        "flags": flags(history),
        "revisions": _revisions(setup),
        "versions": {
            "fedblade": __version__,
            **({"commit": commit} if commit else {}),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "status": status,
    }


def pictures(setup: Setup) -> dict[str, str]:
    """What the samples of a run were read from, and their digest."""
    return {"source": setup.dataset.source, "digest": setup.dataset.digest()}


def _revisions(setup: Setup) -> Revisions:
    """The revisions of the parts that the run uses."""
    revisions = revisions_of(setup.config)
    return without_partition(revisions) if isinstance(setup.clients.train, Reported) else revisions


def _personal(protocol: str, history: list[RoundRecord], clients: Sequence[RoundRecord]) -> dict[str, Any]:
    """Accuracy of the clients' own models: over clients at the end, or their mean in the last round that has it.

    `gapa` prints the mean over clients of their best rounds (chosen on the test set) where own models are measured each
    round; values at the end are stored beside it. Its general accuracy is that of the best round of the global model,
    or the mean over clients of their best on the global test set where there is none. After exchanges at the end of the
    run there is only one model, which counts as the best. Every deviation here is over clients (n).
    """
    final = spread(clients) if clients else _last(protocols.outcome(history), "personal_accuracy")
    if protocol != "gapa":
        return final
    kept = ("personal_accuracy", "personal_std")
    ended = {key.replace("personal", "personal_final"): final[key] for key in kept if key in final}
    general = [float(row["best_general_accuracy"]) for row in clients if "best_general_accuracy" in row]
    return {
        "general_accuracy": fmean(general) if general else protocols.headline(history, "gapa"),
        "general_final_accuracy": protocols.headline(history, "final"),
        **final,
        **ended,
        **spread(clients, "best_accuracy"),
    }


def _last(history: protocols.History, key: str) -> dict[str, float]:
    """The last value of a field that only some rows have, if any has."""
    values = [row[key] for row in history if key in row]
    return {key: values[-1]} if values else {}


def flags(history: list[RoundRecord]) -> list[str]:
    """What a reader of the results must know: health counters that should be zero, rounds without training."""
    totals = {name: sum(row.get(name, 0) for row in history) for name in _SHOULD_BE_ZERO}
    counted = [f"{name} = {total}" for name, total in totals.items() if total]
    idle = untrained_rounds(history)
    return counted + ([f"no client made a step in {idle} of {len(history)} rounds"] if idle else [])


def record_partition(directory: RunDirectory, setup: Setup, model: nn.Module | None) -> None:
    """Write `partition.json`; a resumed run must find the same split, the same data and the same module from Python."""
    split = setup.clients.train
    if directory.read_json(PARTITION) is not None:
        check_started(directory, split.digest(), setup.dataset)
        return
    digests = {"digest": split.digest(), "data": setup.dataset.digest()}
    code = {"sources": sources_of(setup.config), "revisions": _revisions(setup)} | module_digests(setup.config, model)
    # A split that stores no table gets none here either: its digest and the configuration say it all.
    most = MOST_DRAWN if split.on_demand else split.num_clients
    small = split.num_clients * split.num_classes <= _MAX_TABLE_CELLS and split.num_clients <= most
    measured = hardness(split, setup.config.federation.clients_per_round)
    facts = {"pictures": setup.dataset.source, "draws": split.draws, "class_names": setup.dataset.class_names}
    facts |= {"hardness": measured.stored()}
    counts = {"counts": split.table().tolist() if small else None}
    directory.write_json(PARTITION, {"name": setup.config.partition.name} | digests | code | facts | counts)


@cache
def _commit(folder: Path) -> str | None:
    """The commit that the git folder of a checkout is at, read without running git; None where there is no such."""
    try:
        head = (folder / "HEAD").read_text(encoding="utf-8").strip()
        name = head.removeprefix("ref: ")
        if name == head:
            return head
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8").strip()
        packed = (folder / "packed-refs").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)
