"""What is written about a run beside its history: the summary and the partition."""

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import nn

from fedblade import protocols
from fedblade._version import __version__
from fedblade.core.listener import RoundRecord
from fedblade.partitions import MOST_DRAWN, Reported, hardness
from fedblade.results import RunDirectory
from fedblade.runs._checkout import commit_of
from fedblade.runs._client_records import ClientRecord, spread, unseen_fields
from fedblade.runs._ending import stop_facts
from fedblade.runs._flags import run_flags
from fedblade.runs._given_module import module_digests
from fedblade.runs._reuse import sources_of
from fedblade.runs._revisions import Revisions, revisions_of, without_partition
from fedblade.runs._setup import Setup

CHECKOUT = Path(__file__).resolve().parents[3]
"""The folder of the repository, if the library runs from a checkout."""
_MAX_TABLE_CELLS = 1_000_000


def summarise(
    setup: Setup,
    history: list[RoundRecord],
    status: str,
    clients: Sequence[ClientRecord] = (),
    recorded: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The contents of `summary.json`. `clients` are the records of the personal models after the last round.

    If a method ends the run with exchanges (`calibrated`), `accuracy` and `final_accuracy` belong to the saved model
    after them, `last10_accuracy` and `best_accuracy` to the models of the rounds before them. `seconds` is the time
    without exchanges, `exchange_seconds` their time. `recorded` is the run's past (`past_on_record`).
    """
    config, protocol = setup.config, setup.config.evaluation.protocol
    personal, final = _personal(protocol, history, clients), protocols.headline(history, "final")
    headline = {"ft": "personal_accuracy", "gapa": "general_accuracy"}.get(protocol)
    return {
        **_parts(setup),
        "rounds": history[-1]["round"] if history else 0,
        "protocol": protocol,
        "accuracy": personal.get(headline) if headline else protocols.headline(history, protocol),
        "calibrated": protocols.is_calibrated(history),
        "final_accuracy": final,
        "last10_accuracy": protocols.last_mean(history, 10),
        "rounds_evaluated": len(protocols.accuracies(history)),
        "best_accuracy": protocols.best(history),
        "accuracy_of": setup.method.accuracy_of,
        **personal,
        **unseen_fields(clients, history),
        **setup.claims.mark(setup.method.accuracy_of, accuracy=final, personal=personal.get("personal_accuracy")),
        "evaluated_on": config.evaluation.on,
        **_totals(history),
        **stop_facts(history),
        "flags": run_flags(setup, history, finished=status == "finished"),
        "revisions": _revisions(setup),
        "versions": _versions(),
        **(recorded or {}),
        "status": status,
    }


def _parts(setup: Setup) -> dict[str, Any]:
    """What the run is made of, and where it was computed."""
    config = setup.config
    return {
        "method": config.method.name,
        "dataset": setup.dataset.name,
        "pictures": pictures(setup),
        "partition": config.partition.name,
        "model": config.model.name,
        "engine": setup.engine.name,
        "device": str(setup.test_order.device),
        "seed": config.general.seed,
    }


def past_on_record(directory: RunDirectory | None) -> dict[str, Any]:
    """What a reader of the results must know of the run's past, by key; an uneventful past is empty.

    `changes` are the settings that were changed in the middle of the run, each with its values and the rounds done
    before. `origin` is the folder and the round of the run that this one goes on from.
    """
    record = None if directory is None else directory.record
    past = {} if record is None else {"changes": list(record.changes), "origin": dict(record.origin)}
    return {key: value for key, value in past.items() if value}


def origin_notes(directory: RunDirectory) -> list[str]:
    """For the user of a run that went back to a round of another run: where the run comes from."""
    origin = past_on_record(directory).get("origin")
    return [f"'{directory.path}' goes on from round {origin['round']} of '{origin['folder']}'."] if origin else []


def _totals(history: list[RoundRecord]) -> dict[str, float]:
    """Seconds and bytes over all rounds."""
    return {
        "seconds": sum(record["seconds"] for record in history),
        **_last(history, "exchange_seconds"),
        "bytes_up": sum(record["bytes_up"] for record in history),
        "bytes_down": sum(record["bytes_down"] for record in history),
    }


def _versions() -> dict[str, str]:
    commit = commit_of(CHECKOUT)
    return {
        "fedblade": __version__,
        **({"commit": commit} if commit else {}),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def pictures(setup: Setup) -> dict[str, str]:
    """The source of the samples, and their digest."""
    return {"source": setup.dataset.source, "digest": setup.dataset.digest()}


def _revisions(setup: Setup) -> Revisions:
    """The revisions of the parts that a run uses."""
    revisions = revisions_of(setup.config)
    return without_partition(revisions) if isinstance(setup.clients.train, Reported) else revisions


def _personal(protocol: str, history: list[RoundRecord], clients: Sequence[ClientRecord]) -> dict[str, Any]:
    """Accuracy of the personal models: after the last round, or else the mean in the last round that has it.

    If personal models are measured in every round, `gapa` reports the mean over clients of their best rounds (chosen on
    the test set), and beside it the values after the last round. Its general accuracy is that of the best round of the
    global model, or the mean over clients of their best on the whole test set if there is no global model. If exchanges
    end the run, the model after them counts as the best. Every standard deviation here is over clients (n).
    """
    clients = [record for record in clients if not record.get("unseen")]
    final = spread(clients) if clients else _last(protocols.outcome(history), "personal_accuracy")
    if protocol != "gapa":
        return final
    keys = ("personal_accuracy", "personal_std")
    renamed = {key.replace("personal", "personal_final"): final[key] for key in keys if key in final}
    general = [float(client["best_general_accuracy"]) for client in clients if "best_general_accuracy" in client]
    return {
        "general_accuracy": fmean(general) if general else protocols.headline(history, "gapa"),
        "general_final_accuracy": protocols.headline(history, "final"),
        **final,
        **renamed,
        **spread(clients, "best_accuracy"),
    }


def _last(history: protocols.History, key: str) -> dict[str, float]:
    """The last value of a field that some records lack; empty if all lack it."""
    values = [record[key] for record in history if key in record]
    return {key: values[-1]} if values else {}


def code_facts(setup: Setup) -> dict[str, Any]:
    """Digests of the user's files and revisions of the library's parts, as far as the run uses them."""
    return {"sources": sources_of(setup.config), "revisions": _revisions(setup)}


def partition_record(setup: Setup, model: nn.Module | None) -> dict[str, Any]:
    """The contents of `partition.json`."""
    split = setup.clients.train
    digests = {"digest": split.digest(), "data": setup.dataset.digest()}
    code = code_facts(setup) | module_digests(setup.config, model)
    # The table of a split that is drawn on demand would be large. Its digest and the configuration describe it.
    most = MOST_DRAWN if split.on_demand else split.num_clients
    small = split.num_clients * split.num_classes <= _MAX_TABLE_CELLS and split.num_clients <= most
    split_hardness = hardness(split, setup.config.federation.clients_per_round)
    facts = {"pictures": setup.dataset.source, "draws": split.draws, "class_names": setup.dataset.class_names}
    facts |= {"hardness": split_hardness.stored()}
    counts = {"counts": split.table().tolist() if small else None}
    names = {"client_names": setup.client_names if small else None}
    return {"name": setup.config.partition.name} | digests | code | facts | names | counts
