"""Rounds in which no client made a step: they are counted and flagged, and a run of nothing else has failed."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedblade.core.errors import RunFailed
from fedblade.core.outcome import StepLog
from fedblade.runs._setup import Setup

_UNTRAINED = "count_untrained_rounds"
"""In the history: 1 in a round in which no client made a step, absent in every other."""


def counted(log: StepLog) -> dict[str, int]:
    """What the log of a round's training adds to the history."""
    return {} if log.has_steps else {_UNTRAINED: 1}


def untrained_rounds(history: Sequence[Mapping[str, Any]]) -> int:
    """How many rounds changed nothing, because no client made a step."""
    return sum(row.get(_UNTRAINED, 0) for row in history)


def refuse_untrained(setup: Setup, history: Sequence[Mapping[str, Any]]) -> None:
    """Fail a run in which no client made a step in any round: its model is the one it started with."""
    if not history or untrained_rounds(history) < len(history):
        return
    local, largest = setup.config.local, _largest(setup, history)
    samples = f"{largest} {'sample' if largest == 1 else 'samples'}"
    alone = any(row.get("count_skipped_singletons") for row in history)
    why = ", and BatchNorm layers cannot train on a batch of one sample" if alone else ""
    when = "the only round" if len(history) == 1 else f"any of the {len(history)} rounds"
    raise RunFailed(
        f"no client made a step in {when}: local.batch_size = {local.batch_size}, "
        f"local.last_batch = '{local.last_batch}', and the largest of the clients that took part has {samples}{why}. "
        f"{_advice(local.batch_size, largest, alone=alone)}"
    )


def _largest(setup: Setup, history: Sequence[Mapping[str, Any]]) -> int:
    """Samples of the largest client of all cohorts."""
    train = setup.clients.train
    return max(int(train.counts(client, row["round"] - 1).sum()) for row in history for client in row["clients"])


def _advice(batch_size: int, largest: int, *, alone: bool) -> str:
    """What to change: batches of one sample with BatchNorm, incomplete batches that were dropped, or no samples."""
    more = "give clients more samples (fewer clients, more data)"
    if alone and batch_size == 1:
        return "Set local.batch_size to 2 or more."
    if alone:
        return f"{more.capitalize()}, or choose a model without BatchNorm."
    if largest == 0:
        return f"{more.capitalize()}, or let more clients take part (federation.clients_per_round)."
    return f"Set local.last_batch=keep, lower local.batch_size, or {more}."
