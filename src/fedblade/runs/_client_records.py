"""The lines of `clients.jsonl`, and what the summary says of them."""

from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from fedblade.core.registry import metrics
from fedblade.core.state import ServerState
from fedblade.runs._evaluation import PersonalAccuracy, measured_client, personal_accuracies, personal_test_indices
from fedblade.runs._setup import Setup
from fedblade.runs._split import choose_clients_to_measure

MOST_GLOBAL_RECORDS = 1_000
"""In a larger population the global model is measured for so many clients, so that no run pays for lines unasked."""
ClientRecord = dict[str, Any]
"""One line of `clients.jsonl`: the measurements of a client's model."""
_STAGES = {"": "global_accuracy", "tuned_": "accuracy"}
"""Prefix of the fields of the summary, and the key of the accuracy in the lines of the clients."""


def client_facts(setup: Setup, state: ServerState, client: int) -> ClientRecord:
    """What every line says of a client: its number and name, and with `federation.unseen` whether it never trains."""
    counts = setup.clients.train.counts(client, max(state.round - 1, 0))
    name = {} if setup.client_names is None else {"name": setup.client_names[client]}
    facts = {"client": client, **name, "train_samples": int(counts.sum()), "num_classes": int((counts > 0).sum())}
    return facts | ({"unseen": bool(client in setup.unseen)} if len(setup.unseen) else {})


def global_records(setup: Setup, state: ServerState) -> list[ClientRecord]:
    """One line per client for the global model of a method without personal models.

    `global_accuracy` is measured on the client's own test samples. If all clients share the test set it is
    `expected_accuracy` instead: the accuracies by class, weighted with the client's class mix. Where nodes alone have
    test samples there are no lines.
    """
    most = len(setup.evaluated_clients) if len(setup.unseen) else MOST_GLOBAL_RECORDS
    clients = choose_clients_to_measure(setup.config.general.seed, setup.evaluated_clients, most).tolist()
    if setup.clients.is_shared:
        return [] if "global" in setup.claims.whose else _expected_records(setup, state, clients)
    measured = global_accuracies(setup, state, clients)
    records = []
    for client in clients if measured else ():
        found = measured.get(client)
        percent, samples = (None, 0) if found is None else found
        facts = client_facts(setup, state, client)
        records.append(facts | {"test_samples": samples, "global_accuracy": percent})
    return records


def global_accuracies(setup: Setup, state: ServerState, clients: Sequence[int]) -> dict[int, PersonalAccuracy]:
    """Accuracy of the global model on the clients' own test samples, for the clients that have some.

    There are none if all clients share the test set, or if clients have personal models besides.
    """
    if setup.clients.is_shared or setup.method.has_own_models:
        return {}
    parts = ((client, personal_test_indices(setup, client)) for client in clients)
    measured = ((measured_client(setup, state, client, None), indices) for client, indices in parts if len(indices))
    return dict(personal_accuracies(setup, state, measured, setup.personal_test_samples))


def spread(clients: Sequence[Mapping[str, Any]], key: str = "accuracy") -> dict[str, Any]:
    """Mean, standard deviation and worst tenth of `key` over clients, and the number of clients without a value.

    The standard deviation divides by n: it describes these clients, it does not estimate others.
    """
    values = sorted(float(client[key]) for client in clients if client.get(key) is not None)
    if not values:
        return {}
    worst = values[: max(1, len(values) // 10)]
    curves = [client["curve"] for client in clients if client.get("curve")]
    return {
        "personal_accuracy": fmean(values),
        "personal_std": pstdev(values),
        "personal_worst_decile": fmean(worst),
        "personal_min": values[0],
        "clients_without_test_samples": len(clients) - len(values),
        **({"personal_curve": [fmean(point) for point in zip(*curves, strict=True)]} if curves else {}),
    }


def unseen_fields(clients: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Fields of the summary of a run that kept clients from training; empty for all other runs.

    `trained_clients_accuracy` is the mean over the clients whose updates were added in at least one round,
    `unseen_clients_accuracy` that over the clients that never train, and `unseen_gap` the first minus the second. All
    three are for the global model. With the prefix `tuned_` they are for the models that the clients tuned from it.
    """
    if not any(record.get("unseen") for record in clients):
        return {}
    trained = {client for record in history for client in record.get("contributors", ())}
    fields: dict[str, Any] = {"unseen_clients": sum(bool(record.get("unseen")) for record in clients)}
    for prefix, key in _STAGES.items():
        measured = [record for record in clients if record.get(key) is not None]
        seen = [record[key] for record in measured if record["client"] in trained]
        unseen = [record[key] for record in measured if record["unseen"]]
        if seen and unseen:
            fields[f"{prefix}trained_clients_accuracy"] = fmean(seen)
            fields[f"{prefix}unseen_clients_accuracy"] = fmean(unseen)
            fields[f"{prefix}unseen_gap"] = fmean(seen) - fmean(unseen)
    return fields


def _expected_records(setup: Setup, state: ServerState, clients: Sequence[int]) -> list[ClientRecord]:
    by_class = metrics.get("classes").make()
    totals = setup.engine.measure(state, setup.test, setup.test_order, by_class.passes)
    accuracies = np.array([np.nan if a is None else a for a in by_class.finish(totals)["class_accuracy"]])
    known = ~np.isnan(accuracies)
    records = []
    for client in clients:
        counts = setup.clients.train.counts(client, max(state.round - 1, 0)) * known
        expected = float(counts @ np.nan_to_num(accuracies) / counts.sum()) if counts.sum() else None
        records.append(client_facts(setup, state, client) | {"expected_accuracy": expected})
    return records
