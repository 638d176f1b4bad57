"""How clients that never trained fare, compared with clients that did."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

_STAGES = {"": "global_accuracy", "tuned_": "accuracy"}
"""Prefix of the fields of the summary, and the key of the accuracy in the lines of the clients."""


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
