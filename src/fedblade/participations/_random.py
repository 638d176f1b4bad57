"""Cohorts drawn at random: every client alike, or in proportion to its samples."""

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import participations
from fedblade.participations._view import Ints, ParticipationView


@participations.register()
def uniform(view: ParticipationView) -> Ints:
    """Every client is drawn with the same probability, without replacement."""
    return view.clients[view.generator.choice(len(view.clients), view.per_round, replace=False)]


@participations.register()
def by_size(view: ParticipationView) -> Ints:
    """Clients are drawn in proportion to their training samples, without replacement.

    Each of the draws chooses among the clients that are left, with probabilities n_k over the sum of theirs. With
    `federation.weighting = "samples"` large clients count twice: they are drawn more often and weigh more.
    `federation.weighting = "uniform"` leaves it at the first.
    """
    return drawn_by_size(view, view.per_round)


def drawn_by_size(view: ParticipationView, number: int) -> Ints:
    """So many clients, drawn one after another in proportion to their samples."""
    sizes = view.sizes
    known = np.flatnonzero(sizes > 0)
    if len(known) < number:
        raise Misconfigured(
            f"{number} clients are to be drawn by size, but only {len(known)} are known to have samples. Lower "
            f"federation.clients_per_round, or use participation=uniform."
        )
    # The smallest of exponential times with rates n_k: the same as drawing one client after another.
    times = view.generator.standard_exponential(len(sizes))[known] / sizes[known]
    return view.clients[known[np.argsort(times, kind="stable")[:number]]]
