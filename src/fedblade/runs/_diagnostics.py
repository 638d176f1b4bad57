"""The metrics of a round: which are due, what they ask of the trained clients, and their values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Literal

import numpy as np

from fedblade.core.client_diagnostics import DiagnosticRequest
from fedblade.core.metric import Metric
from fedblade.core.plan import IntArray
from fedblade.core.sums import Sum
from fedblade.core.tree import Tree
from fedblade.runs._rounding import FloatArray, rounded
from fedblade.runs._setup import Setup

_MAX_CLIENTS = 10_000
"""The accuracy that clients can expect is computed for populations up to this size."""


@dataclass(frozen=True)
class MetricValues:
    """Values of metrics: single `numbers` for the round record, and `lists` of numbers for `diagnostics.jsonl`.

    An undefined value is None.
    """

    numbers: dict[str, float | None] = field(default_factory=dict)
    lists: dict[str, Any] = field(default_factory=dict)


def metrics_due(setup: Setup, round_: int) -> tuple[Metric, ...]:
    """The metrics of a round (counted from 0): none, accuracy alone, or all. In the last round all are due."""
    number, config = round_ + 1, setup.config
    if number == config.federation.rounds:
        return setup.metrics
    if number % config.evaluation.every:
        return ()
    return (setup.accuracy,) if number % setup.diagnostics_every else setup.metrics


def diagnostic_request(setup: Setup, metrics: Sequence[Metric]) -> DiagnosticRequest | None:
    """The sums that metrics ask of the trained clients, without repetitions; None if there are none."""

    def sums_of(clients: Literal["all", "first"]) -> tuple[Sum, ...]:
        return tuple(
            {local.name: local for metric in metrics if metric.clients == clients for local in metric.local}.values()
        )

    every, first = sums_of("all"), sums_of("first")
    return DiagnosticRequest(every, first, setup.test, setup.test_order) if every or first else None


def values_of(setup: Setup, metrics: Sequence[Metric], totals: Mapping[str, Tree]) -> MetricValues:
    """The values of all metrics for the global model, and the accuracy that clients can expect of it."""
    values = _finish(metrics, totals)
    if "class_accuracy" in values and _is_small(setup):
        labels = setup.clients.train.table()[setup.eligible]
        accuracies = np.broadcast_to(_as_array(values["class_accuracy"]), labels.shape)
        values |= _expected_accuracy(accuracies, labels)
    return _sorted(values)


def personal_values(
    setup: Setup, metrics: Sequence[Metric], totals: Iterable[tuple[int, Mapping[str, Tree]]]
) -> tuple[MetricValues, dict[int, MetricValues]]:
    """The values of all metrics for personal models: their mean over clients, and those of every client.

    The accuracy that a client can expect follows from its personal model and its labels alone.
    """
    by_client, class_accuracies = {}, {}
    for client, client_totals in totals:
        values = _finish(metrics, client_totals)
        by_client[client] = _sorted(values)
        if "class_accuracy" in values:
            class_accuracies[client] = _as_array(values["class_accuracy"])
    mean = _mean_of(list(by_client.values()))
    if not class_accuracies or not _is_small(setup):
        return mean, by_client
    labels = setup.clients.train.table()[list(class_accuracies)]
    expected = _expected_accuracy(np.array(list(class_accuracies.values())), labels)
    return replace(mean, numbers=mean.numbers | expected), by_client


def _finish(metrics: Sequence[Metric], totals: Mapping[str, Tree]) -> dict[str, Any]:
    """The values of all metrics, except those whose sums over trained clients are missing."""
    values: dict[str, Any] = {}
    for metric in metrics:
        if all(local.name in totals for local in metric.local):
            values |= metric.finish(totals)
    return values


def _mean_of(values: Sequence[MetricValues]) -> MetricValues:
    """The mean over clients, number by number."""
    return MetricValues(
        {key: _mean([client.numbers[key] for client in values]) for key in values[0].numbers},
        {key: _mean([client.lists[key] for client in values]) for key in values[0].lists},
    )


def _sorted(values: Mapping[str, Any]) -> MetricValues:
    """Single numbers apart from lists."""
    lists = {key: rounded(value) for key, value in values.items() if not isinstance(value, float | int)}
    numbers = {key: value if np.isfinite(value) else None for key, value in values.items() if key not in lists}
    return MetricValues(numbers, lists)


def _as_array(class_accuracy: Sequence[float | None]) -> FloatArray:
    return np.array([np.nan if accuracy is None else accuracy for accuracy in class_accuracy])


def _is_small(setup: Setup) -> bool:
    return setup.clients.train.num_clients <= _MAX_CLIENTS


def _expected_accuracy(accuracies: FloatArray, labels: IntArray) -> dict[str, float | None]:
    """The accuracy that clients can expect on their labels: mean over clients, and mean of the worst tenth.

    Both arguments are [clients, classes]: the accuracy of the client's model by class, and the client's class counts.
    Classes whose accuracy is unknown are left out.
    """
    counts = labels * ~np.isnan(accuracies)
    has_counts = counts.sum(1) > 0
    if not has_counts.any():
        return {}
    counts = counts[has_counts]
    expected = np.sort((counts * np.nan_to_num(accuracies[has_counts])).sum(1) / counts.sum(1))
    worst = expected[: max(1, round(len(expected) / 10))]
    return {"client_accuracy_mean": float(expected.mean()), "worst_decile_accuracy": float(worst.mean())}


def _mean(values: Sequence[Any]) -> Any:
    """Nested lists of one shape, averaged entry by entry. An entry is None if one of the lists has None there."""
    first = values[0]
    if isinstance(first, Mapping):
        return {key: _mean([value[key] for value in values]) for key in first}
    if isinstance(first, list):
        return [_mean(entries) for entries in zip(*values, strict=True)]
    return None if any(value is None for value in values) else fmean(values)
