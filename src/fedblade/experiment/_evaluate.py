"""What a round's model is worth on the samples that are measured."""

from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import torch

from fedblade.core.plan import IntArray
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.sums import DataPass
from fedblade.experiment._setup import Setup, shuffled


def evaluate(setup: Setup, state: ServerState, store: ClientStore) -> dict[str, Any]:
    """Metrics of the global model, or the mean over the clients' own models where there is no global one."""
    passes = tuple({each.name: each for metric in setup.metrics for each in metric.passes}.values())
    if setup.method.accuracy_of == "personal":
        return _mean_over_clients(setup, state, store, passes)
    totals = setup.engine.measure(state, setup.test, setup.test_order, passes)
    row: dict[str, Any] = {}
    for metric in setup.metrics:
        row |= metric.finish(totals)
    if setup.config.evaluation.protocol == "domain" and setup.test_groups is not None:
        row["domain_accuracy"] = _by_domain(setup, state, setup.test_groups)
    return row


def _mean_over_clients(
    setup: Setup, state: ServerState, store: ClientStore, passes: tuple[DataPass, ...]
) -> dict[str, Any]:
    """Unweighted mean over all clients with data, each with its own model on the same test set."""
    rows: list[dict[str, float]] = []
    for client in setup.eligible:
        totals = setup.engine.measure_own(state, int(client), store, setup.test, setup.test_order, passes)
        rows.append({key: value for metric in setup.metrics for key, value in metric.finish(totals).items()})
    own = _own_accuracy(setup, state, store) if setup.clients.offsets is not None else {}
    return {key: fmean(row[key] for row in rows) for key in rows[0]} | own


def _own_accuracy(setup: Setup, state: ServerState, store: ClientStore) -> dict[str, float]:
    """Unweighted mean over clients of the accuracy on their own test samples; clients without any are left out."""
    accuracy = setup.metrics[0]
    samples = setup.test if setup.clients.source == "test" else replace(setup.problem.samples, augment=None)
    values: list[float] = []
    for client in setup.eligible:
        part = setup.clients.part(int(client))
        if len(part):
            mine = torch.from_numpy(shuffled(setup.config.general.seed, part)).to(setup.test_order.device)
            totals = setup.engine.measure_own(state, int(client), store, samples, mine, accuracy.passes)
            values.append(accuracy.finish(totals)["test_accuracy"])
    left_out = {"count_clients_without_test_samples": len(setup.eligible) - len(values)}
    return {"personal_accuracy": fmean(values), **left_out} if values else {}


def _by_domain(setup: Setup, state: ServerState, groups: IntArray) -> dict[str, float]:
    """Accuracy on each domain's samples; `groups` has the domain of each sample in the order they are measured."""
    accuracy = setup.metrics[0]
    table: dict[str, float] = {}
    for group in np.unique(groups):
        mine = setup.test_order[torch.from_numpy(np.flatnonzero(groups == group)).to(setup.test_order.device)]
        totals = setup.engine.measure(state, setup.test, mine, accuracy.passes)
        table[str(group)] = accuracy.finish(totals)["test_accuracy"]
    return table
