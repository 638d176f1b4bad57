"""Measurements of the model of a round, on the test set and on the clients' test samples."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from fedblade.runs._diagnostics import personal_values, values_of
from fedblade.runs._setup import Setup
from fedblade.runs._split import shuffled


def evaluated_state(setup: Setup, state: ServerState) -> ServerState:
    """The model that is measured and saved. For most methods it is the server's state itself."""
    evaluated = setup.method.evaluated
    return state if evaluated is None else evaluated(state)


@dataclass(frozen=True)
class Evaluation:
    """Measurements of a model: fields of the round record, and accuracies by client if personal models were measured.

    `lists` are values of metrics that are not single numbers. `personal` is the accuracy of a client's personal model
    on the client's test samples. `general` is its accuracy on the whole test set, for methods without a global model.
    """

    record: dict[str, Any]
    personal: Mapping[int, float] = field(default_factory=dict)
    general: Mapping[int, float] = field(default_factory=dict)
    lists: Mapping[str, Any] = field(default_factory=dict)


class PersonalAccuracy(NamedTuple):
    """Accuracy of a client's personal model in percent, and the number of samples that it was measured on."""

    percent: float
    samples: int


def evaluate(
    setup: Setup, state: ServerState, store: ClientStore, metrics: Sequence[Metric], observed: Mapping[str, Tree]
) -> Evaluation:
    """Metrics of the global model, or the mean over personal models if the method has no global model.

    `observed` are the sums over trained clients that metrics asked for. If a method has a global model and personal
    models, the protocol `gapa` measures the personal models in every evaluated round too.
    """
    state = evaluated_state(setup, state)
    protocol = setup.config.evaluation.protocol
    if setup.method.accuracy_of == "personal":
        return _mean_over_clients(setup, state, store, metrics, observed)
    totals = setup.engine.measure(state, setup.test, setup.test_order, _passes(metrics))
    values = values_of(setup, metrics, {**totals, **observed})
    record: dict[str, Any] = dict(values.numbers)
    if protocol == "domain" and setup.test_groups is not None:
        record["domain_accuracy"] = _by_domain(setup, state, setup.test_groups)
    personal = _accuracy_by_client(setup, state, store) if protocol == "gapa" and setup.method.has_own_models else {}
    return Evaluation(record | _personal_fields(setup, personal), personal, lists=values.lists)


def measured_client(setup: Setup, state: ServerState, client: int, kept: State | None) -> MeasuredClient:
    """A client whose personal model is measured: the state that it keeps, and its class counts in the last round."""
    counts = setup.clients.train.counts(client, max(state.round - 1, 0))
    return MeasuredClient(client, kept, torch.from_numpy(np.ascontiguousarray(counts)).to(setup.test_order.device))


def personal_test_indices(setup: Setup, client: int) -> Tensor:
    """Indices into `setup.personal_test_samples` for a client, in a fixed random order. There may be none."""
    indices = shuffled(setup.config.general.seed, setup.clients.part(client))
    return torch.from_numpy(indices).to(setup.test_order.device)


def personal_accuracies(
    setup: Setup, state: ServerState, clients: Iterable[tuple[MeasuredClient, Tensor]], samples: Samples
) -> Iterator[tuple[int, PersonalAccuracy]]:
    """Accuracy of personal models, in the order of `clients`; a client comes with the indices of its samples.

    A node with its own data measures on its data, and ignores the indices.
    """
    for client, totals in setup.engine.measure_personal(state, clients, samples, setup.accuracy.passes):
        yield client, PersonalAccuracy(_accuracy(setup, totals), num_samples(totals))


def _accuracy(setup: Setup, totals: Mapping[str, Tree]) -> float:
    return float(setup.accuracy.finish(totals)["test_accuracy"])


def _mean_over_clients(
    setup: Setup, state: ServerState, store: ClientStore, metrics: Sequence[Metric], observed: Mapping[str, Tree]
) -> Evaluation:
    """The unweighted mean over clients, with every client's personal model on the same test set."""
    clients = (
        (_stored_client(setup, state, int(client), store), setup.test_order) for client in setup.evaluated_clients
    )
    measured = setup.engine.measure_personal(state, clients, setup.test, _passes(metrics))
    totals = ((client, {**client_totals, **observed}) for client, client_totals in measured)
    mean, by_client = personal_values(setup, metrics, totals)
    record: dict[str, Any] = dict(mean.numbers)
    protocol = setup.config.evaluation.protocol
    if protocol == "domain" and setup.test_groups is not None:
        record["domain_accuracy"] = _by_trained_domain(setup, state, store, setup.test_groups)
    has_test_parts = not setup.clients.is_shared or protocol == "gapa"
    personal = _accuracy_by_client(setup, state, store) if has_test_parts else {}
    accuracies = {client: values.numbers["test_accuracy"] for client, values in by_client.items()}
    general = {client: accuracy for client, accuracy in accuracies.items() if accuracy is not None}
    return Evaluation(record | _personal_fields(setup, personal), personal, general, mean.lists)


def _stored_client(setup: Setup, state: ServerState, client: int, store: ClientStore) -> MeasuredClient:
    return measured_client(setup, state, client, store.get(client, state.round))


def _passes(metrics: Sequence[Metric]) -> tuple[DataPass, ...]:
    """The passes of all metrics, without repetitions."""
    return tuple({data_pass.name: data_pass for metric in metrics for data_pass in metric.passes}.values())


def _accuracy_by_client(setup: Setup, state: ServerState, store: ClientStore) -> dict[int, float]:
    """Accuracy of personal models on the clients' test samples, for the clients that have test samples."""
    parts = ((int(client), personal_test_indices(setup, int(client))) for client in setup.evaluated_clients)
    clients = ((_stored_client(setup, state, client, store), indices) for client, indices in parts if len(indices))
    accuracies = personal_accuracies(setup, state, clients, setup.personal_test_samples)
    return {client: accuracy.percent for client, accuracy in accuracies}


def _personal_fields(setup: Setup, accuracies: Mapping[int, float]) -> dict[str, float]:
    """The unweighted mean over clients with test samples, and the number of clients without."""
    without = {"count_clients_without_test_samples": len(setup.evaluated_clients) - len(accuracies)}
    return {"personal_accuracy": fmean(accuracies.values()), **without} if accuracies else {}


def _indices_of_group(setup: Setup, groups: IntArray, group: object) -> Tensor:
    """The test samples of one group, in the order in which they are measured."""
    return setup.test_order[torch.from_numpy(np.flatnonzero(groups == group)).to(setup.test_order.device)]


def _by_domain(setup: Setup, state: ServerState, groups: IntArray) -> dict[str, float]:
    """Accuracy of the global model by domain. `groups` is the domain of every test sample."""
    accuracies: dict[str, float] = {}
    for group in np.unique(groups):
        indices = _indices_of_group(setup, groups, group)
        totals = setup.engine.measure(state, setup.test, indices, setup.accuracy.passes)
        accuracies[str(group)] = _accuracy(setup, totals)
    return accuracies


def _by_trained_domain(setup: Setup, state: ServerState, store: ClientStore, groups: IntArray) -> dict[str, float]:
    """For every domain, the mean accuracy of the personal models of the clients that train on this domain."""
    train_groups = setup.dataset.train.groups
    if train_groups is None:
        return {}
    indices = {group: _indices_of_group(setup, groups, group) for group in np.unique(train_groups)}
    pairs = [
        (int(client), group)
        for client in setup.evaluated_clients
        for group in np.unique(train_groups[setup.clients.train.indices(int(client), max(state.round - 1, 0))])
        if len(indices[group])
    ]
    clients = ((_stored_client(setup, state, client, store), indices[group]) for client, group in pairs)
    accuracies: dict[str, list[float]] = {}
    unmatched = iter(pairs)
    for client, accuracy in personal_accuracies(setup, state, clients, setup.test):
        # Results come in the order of `pairs`, but an engine may leave pairs out.
        group = next(group for candidate, group in unmatched if candidate == client)
        accuracies.setdefault(str(group), []).append(accuracy.percent)
    return {group: fmean(percents) for group, percents in sorted(accuracies.items())}
