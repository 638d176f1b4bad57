"""Which metrics a round asks for, what they ask of its clients, and where their numbers go."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedblade.core.client_diagnostics import DiagnosticRequest
from fedblade.core.metric import Metric
from fedblade.core.plan import IntArray
from fedblade.core.tree import Tree
from fedblade.runs._setup import Setup

FloatArray = NDArray[np.float64]

_DIGITS = 6
"""Significant digits of numbers in lists."""
_MOST_CLIENTS = 10_000
"""Clients up to which the accuracy that each can expect is worked out every time."""


@dataclass(frozen=True)
class Findings:
    """What metrics found: `numbers` for the history, and `lists` of numbers for a file of their own.

    What is undefined is None, in memory as in the files.
    """

    numbers: dict[str, float | None] = field(default_factory=dict)
    lists: dict[str, Any] = field(default_factory=dict)


def metrics_due(setup: Setup, round_: int) -> tuple[Metric, ...]:
    """The metrics of a round that is evaluated: accuracy always, the others every so many rounds and in the last."""
    done, config = round_ + 1, setup.config
    every = done == config.federation.rounds or done % config.evaluation.diagnostics_every == 0
    return setup.metrics if every else setup.metrics[:1]


def diagnostic_request(setup: Setup, metrics: Sequence[Metric]) -> DiagnosticRequest | None:
    """What the metrics ask of trained clients, each sum once; None if they ask nothing."""
    asked = {
        kind: tuple({each.name: each for metric in metrics if metric.of == kind for each in metric.local}.values())
        for kind in ("all", "first")
    }
    if not any(asked.values()):
        return None
    return DiagnosticRequest(asked["all"], asked["first"], setup.test, setup.test_order)


def finish(setup: Setup, metrics: Sequence[Metric], totals: Mapping[str, Tree]) -> Findings:
    """The findings of all metrics about the global model, and what clients can expect of it."""
    found = _finished(metrics, totals)
    if "class_accuracy" in found and _is_small(setup):
        labels = setup.clients.train.table()[setup.eligible]
        found |= _over_clients(np.broadcast_to(_accuracies(found["class_accuracy"]), labels.shape), labels)
    return _sorted(found)


def finish_own(
    setup: Setup, metrics: Sequence[Metric], totals: Iterable[tuple[int, Mapping[str, Tree]]]
) -> tuple[Findings, dict[int, Findings]]:
    """The findings of all metrics about own models: their mean over clients, and those of each client.

    What a client can expect is told by the accuracies of its own model and by its own labels, of no one else's.
    """
    rows, by_class = {}, {}
    for client, own in totals:
        found = _finished(metrics, own)
        rows[client] = _sorted(found)
        if "class_accuracy" in found:
            by_class[client] = _accuracies(found["class_accuracy"])
    mean = _mean_of(list(rows.values()))
    if not by_class or not _is_small(setup):
        return mean, rows
    labels = setup.clients.train.table()[list(by_class)]
    expected = _over_clients(np.array(list(by_class.values())), labels)
    return replace(mean, numbers=mean.numbers | expected), rows


def _finished(metrics: Sequence[Metric], totals: Mapping[str, Tree]) -> dict[str, Any]:
    """What all metrics find; one whose clients did not train is left out."""
    found: dict[str, Any] = {}
    for metric in metrics:
        if all(each.name in totals for each in metric.local):
            found |= metric.finish(totals)
    return found


def _mean_of(findings: Sequence[Findings]) -> Findings:
    """The mean over clients, number by number."""
    return Findings(
        {key: _mean([each.numbers[key] for each in findings]) for key in findings[0].numbers},
        {key: _mean([each.lists[key] for each in findings]) for key in findings[0].lists},
    )


def _sorted(found: Mapping[str, Any]) -> Findings:
    lists = {key: _rounded(value) for key, value in found.items() if not isinstance(value, float | int)}
    numbers = {key: value if np.isfinite(value) else None for key, value in found.items() if key not in lists}
    return Findings(numbers, lists)


def _accuracies(by_class: Sequence[float | None]) -> FloatArray:
    return np.array([np.nan if each is None else each for each in by_class])


def _is_small(setup: Setup) -> bool:
    return setup.clients.train.num_clients <= _MOST_CLIENTS


def _over_clients(accuracies: FloatArray, labels: IntArray) -> dict[str, float | None]:
    """What each client can expect of its model's accuracies by class, given its own mix of labels.

    Both are [clients, classes]. Mean over clients, and mean of the worst tenth of them. Classes that were not measured
    are left out of the mix.
    """
    counts = labels * ~np.isnan(accuracies)
    some = counts.sum(1) > 0
    if not some.any():
        return {}
    held = counts[some]
    expected = np.sort((held * np.nan_to_num(accuracies[some])).sum(1) / held.sum(1))
    worst = expected[: max(1, round(len(expected) / 10))]
    return {"client_accuracy_mean": float(expected.mean()), "worst_decile_accuracy": float(worst.mean())}


def _mean(values: Sequence[Any]) -> Any:
    """Nested lists of one shape, averaged entry by entry; an entry that one of them lacks is None."""
    first = values[0]
    if isinstance(first, Mapping):
        return {key: _mean([each[key] for each in values]) for key in first}
    if isinstance(first, list):
        return [_mean(entries) for entries in zip(*values, strict=True)]
    return None if any(each is None for each in values) else fmean(values)


def _rounded(value: Any) -> Any:
    """Numbers in nested lists cut to their significant digits; NaN becomes None, whole numbers stay."""
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None
    return value
