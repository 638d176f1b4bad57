"""Rounds in which no client made a local step. They are counted; a run of such rounds only has failed."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedblade.core.errors import RunFailed
from fedblade.core.outcome import StepLog
from fedblade.core.words import plural
from fedblade.runs._setup import Setup

_UNTRAINED = "count_untrained_rounds"
"""A field of the round record: 1 if no client made a local step, otherwise absent."""


def untrained_count(log: StepLog) -> dict[str, int]:
    """The field of the round record, from the log of the round's training."""
    return {} if log.has_steps else {_UNTRAINED: 1}


def untrained_rounds(history: Sequence[Mapping[str, Any]]) -> int:
    """The number of rounds in which no client made a local step."""
    return sum(record.get(_UNTRAINED, 0) for record in history)


def refuse_untrained(setup: Setup, history: Sequence[Mapping[str, Any]]) -> None:
    """Fail if no client made a local step in any round: the model is still the initial one."""
    if not history or untrained_rounds(history) < len(history):
        return
    local, largest = setup.config.local, _largest(setup, history)
    singletons = any(record.get("count_skipped_singletons") for record in history)
    why = ", and BatchNorm layers cannot train on a batch of one sample" if singletons else ""
    when = "the only round" if len(history) == 1 else f"any of the {len(history)} rounds"
    raise RunFailed(
        f"no client made a step in {when}: local.batch_size = {local.batch_size}, local.last_batch = "
        f"'{local.last_batch}', and the largest of the clients that took part has {plural(largest, 'sample')}{why}. "
        f"{_advice(local.batch_size, largest, singletons=singletons)}"
    )


def _largest(setup: Setup, history: Sequence[Mapping[str, Any]]) -> int:
    """Samples of the largest client that took part."""
    train = setup.clients.train
    return max(
        int(train.counts(client, record["round"] - 1).sum()) for record in history for client in record["clients"]
    )


def _advice(batch_size: int, largest: int, *, singletons: bool) -> str:
    """What to change. The causes: batches of one sample with BatchNorm, dropped last batches, or no samples."""
    more = "give clients more samples (fewer clients, more data)"
    if singletons and batch_size == 1:
        return "Set local.batch_size to 2 or more."
    if singletons:
        return f"{more.capitalize()}, or choose a model without BatchNorm."
    if largest == 0:
        return f"{more.capitalize()}, or let more clients take part (federation.clients_per_round)."
    return f"Set local.last_batch=keep, lower local.batch_size, or {more}."
