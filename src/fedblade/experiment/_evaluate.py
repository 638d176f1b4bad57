"""What a round's model is worth on the samples that are measured."""

from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedblade.core.plan import IntArray
from fedblade.core.samples import Samples
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.sums import DataPass
from fedblade.core.tree import State
from fedblade.engines.base import Holder
from fedblade.experiment._setup import Setup, shuffled


def measured_state(setup: Setup, state: ServerState) -> ServerState:
    """The model that is measured and saved."""
    evaluated = setup.method.evaluated
    return state if evaluated is None else evaluated(state)


def evaluate(setup: Setup, state: ServerState, store: ClientStore) -> dict[str, Any]:
    """Metrics of the global model, or the mean over the clients' own models where there is no global one.

    Own models beside a global one are measured each round where the protocol needs them (P-GAPA).
    """
    state = measured_state(setup, state)
    passes = tuple({each.name: each for metric in setup.metrics for each in metric.passes}.values())
    protocol = setup.config.evaluation.protocol
    if setup.method.accuracy_of == "personal":
        return _mean_over_clients(setup, state, store, passes)
    totals = setup.engine.measure(state, setup.test, setup.test_order, passes)
    row: dict[str, Any] = {}
    for metric in setup.metrics:
        row |= metric.finish(totals)
    if protocol == "domain" and setup.test_groups is not None:
        row["domain_accuracy"] = _by_domain(setup, state, setup.test_groups)
    if protocol == "gapa" and setup.method.has_own_models:
        row |= _own_accuracy(setup, state, store)
    return row


def holder(setup: Setup, state: ServerState, client: int, own: State | None) -> Holder:
    """A client with what it keeps and what it holds in the last finished round."""
    counts = setup.clients.train.counts(client, max(state.round - 1, 0))
    return Holder(client, own, torch.from_numpy(np.ascontiguousarray(counts)).to(setup.test_order.device))


def own_samples(setup: Setup, client: int) -> tuple[Samples, Tensor]:
    """The samples a client's own model is measured on, in a fixed shuffle; there may be none."""
    samples = setup.test if setup.clients.source == "test" else replace(setup.problem.samples, augment=None)
    mine = shuffled(setup.config.general.seed, setup.clients.part(client))
    return samples, torch.from_numpy(mine).to(setup.test_order.device)


def accuracy_of_own(setup: Setup, state: ServerState, client: Holder, samples: Samples, indices: Tensor) -> float:
    """Accuracy of a client's own model in percent."""
    accuracy = setup.metrics[0]
    return accuracy.finish(setup.engine.measure_own(state, client, samples, indices, accuracy.passes))["test_accuracy"]


def _mean_over_clients(
    setup: Setup, state: ServerState, store: ClientStore, passes: tuple[DataPass, ...]
) -> dict[str, Any]:
    """Unweighted mean over all clients with data, each with its own model on the same test set."""
    rows: list[dict[str, float]] = []
    for client in setup.eligible:
        mine = holder(setup, state, int(client), store.get(int(client), state.round))
        totals = setup.engine.measure_own(state, mine, setup.test, setup.test_order, passes)
        rows.append({key: value for metric in setup.metrics for key, value in metric.finish(totals).items()})
    row: dict[str, Any] = {key: fmean(row[key] for row in rows) for key in rows[0]}
    if setup.config.evaluation.protocol == "domain" and setup.test_groups is not None:
        row["domain_accuracy"] = _by_own_domain(setup, state, store, setup.test_groups)
    return row | (_own_accuracy(setup, state, store) if setup.clients.offsets is not None else {})


def _own_accuracy(setup: Setup, state: ServerState, store: ClientStore) -> dict[str, float]:
    """Unweighted mean over clients of the accuracy on their own test samples; clients without any are left out."""
    values: list[float] = []
    for client in setup.eligible:
        samples, mine = own_samples(setup, int(client))
        if len(mine):
            who = holder(setup, state, int(client), store.get(int(client), state.round))
            values.append(accuracy_of_own(setup, state, who, samples, mine))
    left_out = {"count_clients_without_test_samples": len(setup.eligible) - len(values)}
    return {"personal_accuracy": fmean(values), **left_out} if values else {}


def _of_group(setup: Setup, groups: IntArray, group: object) -> Tensor:
    """The measured samples of one group, in the order they are measured."""
    return setup.test_order[torch.from_numpy(np.flatnonzero(groups == group)).to(setup.test_order.device)]


def _by_domain(setup: Setup, state: ServerState, groups: IntArray) -> dict[str, float]:
    """Accuracy on each domain's samples; `groups` has the domain of each sample in the order they are measured."""
    accuracy = setup.metrics[0]
    table: dict[str, float] = {}
    for group in np.unique(groups):
        totals = setup.engine.measure(state, setup.test, _of_group(setup, groups, group), accuracy.passes)
        table[str(group)] = accuracy.finish(totals)["test_accuracy"]
    return table


def _by_own_domain(setup: Setup, state: ServerState, store: ClientStore, groups: IntArray) -> dict[str, float]:
    """Accuracy on each domain's samples, of the own models of the clients that train on this domain."""
    train_groups = setup.dataset.train.groups
    values: dict[str, list[float]] = {}
    for client in setup.eligible:
        held = setup.clients.train.indices(int(client), max(state.round - 1, 0))
        for group in [] if train_groups is None else np.unique(train_groups[held]):
            mine = _of_group(setup, groups, group)
            if len(mine):
                who = holder(setup, state, int(client), store.get(int(client), state.round))
                values.setdefault(str(group), []).append(accuracy_of_own(setup, state, who, setup.test, mine))
    return {group: fmean(found) for group, found in sorted(values.items())}
