"""Rounds in which no client made a step: they are counted and flagged, and a run of nothing else has failed."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedblade.core.errors import RunFailed
from fedblade.core.outcome import StepLog
from fedblade.experiment._setup import Setup

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
    local, largest = setup.config.local, int(setup.clients.train.sizes().max())
    alone = any(row.get("count_skipped_singletons") for row in history)
    why = ", and BatchNorm layers cannot train on a batch of one sample" if alone else ""
    samples = "1 sample" if largest == 1 else f"{largest} samples"
    raise RunFailed(
        f"no client made a step in any of the {len(history)} rounds: local.batch_size = {local.batch_size}, "
        f"local.last_batch = '{local.last_batch}', and the largest client has {samples}{why}. "
        f"Set local.last_batch=keep, lower local.batch_size, or give clients more samples (fewer clients, more data)."
    )
