"""Warnings for a reader of the results: divergence, chance, health counters, idle rounds and missing clients."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedblade import protocols
from fedblade.core.plan import IntArray
from fedblade.core.words import listing, plural
from fedblade.partitions import Reported
from fedblade.results import count_contributions
from fedblade.runs._ending import is_optimistic
from fedblade.runs._setup import Setup
from fedblade.runs._untrained import untrained_rounds

_MUCH = 10.0
"""A test loss that is so many times that of the start means divergence."""
_LAST_ROUNDS = 10
"""How many evaluated rounds at the end are looked at."""
_LEAST_ROUNDS = 10
"""A shorter run may be at chance because it is short."""
_DEVIATIONS = 2.0
"""How far above chance an accuracy may lie and still count as chance, in standard deviations of the test set."""
_OFTEN_MISSING = 0.1
"""A client that is missing in more than this share of its rounds is named."""
_MOST_NAMED = 5
"""Missing clients that a warning names."""
_SHOULD_BE_ZERO = {
    "count_cholesky_failures": "a covariance had no Cholesky factor {} times",
    "count_scale_clamped": "the scale of the logits fell below its bound and was set to it in {} local steps",
}
"""Health counters that stay at zero in a normal run, in words."""


def run_flags(setup: Setup, history: Sequence[Mapping[str, Any]], *, finished: bool) -> list[str]:
    """All warnings about a run. No warning says that an unfinished run is at chance, because it may still improve.

    The numbers are those of the history: of the personal models if the method has no global model.
    """
    idle = untrained_rounds(history)
    return [
        *_divergence(history, setup.dataset.num_classes),
        *(_chance(setup, history) if finished else ()),
        *_counters(history),
        *([f"no client made a step in {idle} of {len(history)} rounds"] if idle else []),
        *([] if setup.config.federation.dropout else _missing_clients(history)),
        *_optimistic_end(setup, history),
        *setup.claims.flags(),
    ]


def _divergence(history: Sequence[Mapping[str, Any]], num_classes: int) -> list[str]:
    """Whether a test loss near the end is much above that of the start.

    The start is the first evaluated round. A model that guesses has the cross-entropy ln C: a start below it counts as
    ln C, so that little losses may rise, and a start much above it counts as that much, because the run had diverged
    by then.
    """
    losses = _losses(history)
    if not losses:
        return []
    first, guessing = losses[0], math.log(max(2, num_classes))
    start = min(max(first, guessing), _MUCH * guessing)
    last = _losses(protocols.outcome(history))[-_LAST_ROUNDS:]
    worst = max(last, default=0.0)
    if worst < _MUCH * start:
        return []
    against = f"that of the first evaluated round ({first:.3g})"
    if start != first:
        against = f"that of guessing ({guessing:.3g})"
    return [
        f"diverged: the test loss is up to {worst:.3g} in the last {plural(len(last), 'evaluated round')}, against "
        f"{against}; lower optimizer.lr"
    ]


def _losses(history: Sequence[Mapping[str, Any]]) -> list[float]:
    """The test losses of the evaluated rounds; one that is not a finite number is infinite."""
    losses = [record.get("test_loss") for record in history if record.get("test_accuracy") is not None]
    return [float(loss) if loss is not None and math.isfinite(loss) else math.inf for loss in losses]


def _chance(setup: Setup, history: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whether the accuracy at the end is not above that of always answering the same class, or a random one."""
    # The first half of a run is no end, however short the run is.
    evaluated = len(protocols.accuracies(history))
    accuracy = protocols.last_mean(protocols.outcome(history), max(1, min(_LAST_ROUNDS, evaluated // 2)))
    if accuracy is None or len(history) < _LEAST_ROUNDS:
        return []
    counts = _class_counts(setup)
    share = max(1 / len(counts), float(counts.max() / counts.sum()))
    deviation = math.sqrt(share * (1 - share) / counts.sum())
    if accuracy > 100 * (share + _DEVIATIONS * deviation):
        return []
    return [f"at chance: the accuracy at the end is {accuracy:.2f} %, and guessing gives {100 * share:.2f} %"]


def _class_counts(setup: Setup) -> IntArray:
    """Samples by class of what the model is measured on. What nodes measure on is unknown: their training samples."""
    if isinstance(setup.clients.train, Reported):
        counts: IntArray = setup.clients.train.table().sum(axis=0)
        return counts
    labels = setup.test.labels[setup.test_order].cpu().numpy()
    return np.bincount(labels, minlength=setup.dataset.num_classes)


def _counters(history: Sequence[Mapping[str, Any]]) -> list[str]:
    totals = {name: sum(record.get(name) or 0 for record in history) for name in _SHOULD_BE_ZERO}
    return [f"{_SHOULD_BE_ZERO[name].format(f'{total:g}')} ({name})" for name, total in totals.items() if total]


def _optimistic_end(setup: Setup, history: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whether the end of the run was chosen on the test set."""
    if not is_optimistic(history, setup.config):
        return []
    return ["stop.patience chose the last round on the test set, so the accuracy is optimistic"]


def _missing_clients(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """The clients that are missing in more than a tenth of their rounds, the most often missing first.

    Rounds of an earlier version have no `contributors` and say nothing.
    """
    rounds = [(record["clients"], record["contributors"]) for record in history if "contributors" in record]
    often = [client for client in count_contributions(rounds) if client.missing > _OFTEN_MISSING * client.asked]
    often.sort(key=lambda client: (-client.missing / client.asked, -client.missing, client.client))
    if not often:
        return []
    named = [f"client {client.client} in {client.missing} of {client.asked}" for client in often]
    return [f"missing in more than a tenth of their rounds: {listing(named, _MOST_NAMED)}"]
