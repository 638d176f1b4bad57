"""Clients that finish only some of their local steps in a round."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedblade.core.lengths import Ints, PhasePlan, phase_steps
from fedblade.core.streams import Stream, Streams


def finished_share(streams: Streams, probability: float, round_: int, client: int) -> float | None:
    """Where the client stops in a round, as a number from 0 up to 1; None for a client that finishes all steps."""
    if not probability:
        return None
    stops, share = streams.numpy(Stream.PARTIAL_WORK, round_, client).random(2)
    return float(share) if stops < probability else None


def finished_phases(phases: Sequence[PhasePlan], batches: Ints, share: float) -> tuple[PhasePlan, ...]:
    """The phases cut short: of n steps of a phase, k = 1 + floor(share · (n − 1)) are made, from 1 to n − 1.

    `batches` is the number of batches in an epoch of the client. A phase of one step is not cut. Every phase makes at
    least one step, so that a method with several phases finishes the same share of each.
    """
    planned = [int(phase_steps(phase, batches)[0]) for phase in phases]
    return tuple(
        replace(phase, steps=1 + int(np.floor(share * (steps - 1)))) if steps > 1 else phase
        for phase, steps in zip(phases, planned, strict=True)
    )
