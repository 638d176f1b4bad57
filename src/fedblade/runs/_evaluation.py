"""What a round's model is worth on the samples that are measured."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedblade.core.metric import Metric
from fedblade.core.plan import IntArray
from fedblade.core.samples import Samples
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.sums import DataPass
from fedblade.core.tree import State, Tree
from fedblade.diagnostics import num_samples
from fedblade.engines.base import MeasuredClient
from fedblade.runs._diagnostics import finish, finish_own
from fedblade.runs._setup import Setup, shuffled


def measured_state(setup: Setup, state: ServerState) -> ServerState:
    """The model that is measured and saved."""
    evaluated = setup.method.evaluated
    return state if evaluated is None else evaluated(state)


@dataclass(frozen=True)
class Evaluation:
    """What a model is worth: fields of the history, and accuracies by client where own models were measured.

    `lists` are what metrics found that is no single number.
    `own` is on the samples of the client, `general` on those of everyone, for methods without a global model.
    """

    row: dict[str, Any]
    own: Mapping[int, float] = field(default_factory=dict)
    general: Mapping[int, float] = field(default_factory=dict)
    lists: Mapping[str, Any] = field(default_factory=dict)


def evaluate(
    setup: Setup, state: ServerState, store: ClientStore, metrics: Sequence[Metric], observed: Mapping[str, Tree]
) -> Evaluation:
    """Metrics of the global model, or the mean over the clients' own models where there is no global one.

    `observed` is what the metrics asked of the trained clients. Own models beside a global one are measured each round
    where the protocol needs them (`gapa`).
    """
    state = measured_state(setup, state)
    protocol = setup.config.evaluation.protocol
    if setup.method.accuracy_of == "personal":
        return _mean_over_clients(setup, state, store, metrics, observed)
    totals = setup.engine.measure(state, setup.test, setup.test_order, _passes(metrics))
    found = finish(setup, metrics, {**totals, **observed})
    row: dict[str, Any] = dict(found.numbers)
    if protocol == "domain" and setup.test_groups is not None:
        row["domain_accuracy"] = _by_domain(setup, state, setup.test_groups)
    own = _own_accuracies(setup, state, store) if protocol == "gapa" and setup.method.has_own_models else {}
    return Evaluation(row | _mean_of_own(setup, own), own, lists=found.lists)


def holder(setup: Setup, state: ServerState, client: int, own: State | None) -> MeasuredClient:
    """A client with what it keeps and what it holds in the last finished round."""
    counts = setup.clients.train.counts(client, max(state.round - 1, 0))
    return MeasuredClient(client, own, torch.from_numpy(np.ascontiguousarray(counts)).to(setup.test_order.device))


def _holder(setup: Setup, state: ServerState, client: int, store: ClientStore) -> MeasuredClient:
    return holder(setup, state, client, store.get(client, state.round))


def own_samples(setup: Setup) -> Samples:
    """The samples that parts of are the clients' own to be measured on."""
    return setup.test if setup.clients.source == "test" else replace(setup.problem.samples, augment=None)


def own_part(setup: Setup, client: int) -> Tensor:
    """Which samples a client's own model is measured on, in a fixed shuffle; there may be none."""
    mine = shuffled(setup.config.general.seed, setup.clients.part(client))
    return torch.from_numpy(mine).to(setup.test_order.device)


class OwnAccuracy(NamedTuple):
    """Accuracy of a client's own model in percent, and the number of samples it was measured on."""

    percent: float
    samples: int


def own_accuracies(
    setup: Setup, state: ServerState, clients: Iterable[tuple[MeasuredClient, Tensor]], samples: Samples
) -> Iterator[tuple[int, OwnAccuracy]]:
    """Accuracy of the clients' own models, each on the samples at its indices, in the order given.

    A client that holds its samples itself is measured on those, however many indices there were.
    """
    accuracy = setup.metrics[0]
    for client, totals in setup.engine.measure_own(state, clients, samples, accuracy.passes):
        yield client, OwnAccuracy(accuracy.finish(totals)["test_accuracy"], num_samples(totals))


def _mean_over_clients(
    setup: Setup, state: ServerState, store: ClientStore, metrics: Sequence[Metric], observed: Mapping[str, Tree]
) -> Evaluation:
    """Unweighted mean over all measured clients, each with its own model on the same test set."""
    clients = ((_holder(setup, state, int(client), store), setup.test_order) for client in setup.measured)
    measured = setup.engine.measure_own(state, clients, setup.test, _passes(metrics))
    mean, rows = finish_own(setup, metrics, ((client, {**totals, **observed}) for client, totals in measured))
    row: dict[str, Any] = dict(mean.numbers)
    protocol = setup.config.evaluation.protocol
    if protocol == "domain" and setup.test_groups is not None:
        row["domain_accuracy"] = _by_own_domain(setup, state, store, setup.test_groups)
    apart = not setup.clients.is_shared or protocol == "gapa"
    own = _own_accuracies(setup, state, store) if apart else {}
    accuracies = {client: each.numbers["test_accuracy"] for client, each in rows.items()}
    general = {client: value for client, value in accuracies.items() if value is not None}
    return Evaluation(row | _mean_of_own(setup, own), own, general, mean.lists)


def _passes(metrics: Sequence[Metric]) -> tuple[DataPass, ...]:
    """The passes of all metrics, each once."""
    return tuple({each.name: each for metric in metrics for each in metric.passes}.values())


def _own_accuracies(setup: Setup, state: ServerState, store: ClientStore) -> dict[int, float]:
    """Accuracy of each client's own model on its test samples, where it has any."""
    parts = ((int(client), own_part(setup, int(client))) for client in setup.measured)
    clients = ((_holder(setup, state, client, store), mine) for client, mine in parts if len(mine))
    found = own_accuracies(setup, state, clients, own_samples(setup))
    return {client: accuracy.percent for client, accuracy in found}


def _mean_of_own(setup: Setup, values: Mapping[int, float]) -> dict[str, float]:
    """Unweighted mean over the clients with test samples of their own, and the number of the others."""
    left_out = {"count_clients_without_test_samples": len(setup.measured) - len(values)}
    return {"personal_accuracy": fmean(values.values()), **left_out} if values else {}


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
    if train_groups is None:
        return {}
    parts = {group: _of_group(setup, groups, group) for group in np.unique(train_groups)}
    pairs = [
        (int(client), group)
        for client in setup.measured
        for group in np.unique(train_groups[setup.clients.train.indices(int(client), max(state.round - 1, 0))])
        if len(parts[group])
    ]
    clients = ((_holder(setup, state, client, store), parts[group]) for client, group in pairs)
    values: dict[str, list[float]] = {}
    left = iter(pairs)
    for client, accuracy in own_accuracies(setup, state, clients, setup.test):
        # In their order; an engine may have to leave some out.
        group = next(group for other, group in left if other == client)
        values.setdefault(str(group), []).append(accuracy.percent)
    return {group: fmean(found) for group, found in sorted(values.items())}
