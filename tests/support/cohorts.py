"""Cohorts without a run: the choice of a participation among clients of given sizes."""

from typing import Any

import numpy as np

from fedblade.config.run_config import ChosenPart
from fedblade.core.registry import Entry, participations
from fedblade.core.streams import Streams
from fedblade.runs._cohorts import Cohorts


def cohorts_of(
    part: Any, eligible: Any, per_round: int, *, sizes: Any = None, rounds: int = 3, seed: int = 0, **knobs: Any
) -> Cohorts:
    """Cohorts of a part by its name, or of a function; without `sizes` all clients are of size 1."""
    entry = participations.get(part) if isinstance(part, str) else Entry("mine", part)
    clients = np.asarray(eligible)

    def all_sizes() -> Any:
        return np.ones(int(clients.max()) + 1, dtype=np.int64) if sizes is None else np.asarray(sizes)

    chosen = ChosenPart(entry.name, entry, knobs, "participation")
    return Cohorts(chosen, Streams(seed), clients, all_sizes, per_round, rounds)
