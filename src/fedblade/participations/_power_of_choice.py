"""Power of choice: of some candidates, those with the largest loss (Cho, Wang and Joshi, 2020)."""

from typing import Literal

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import participations
from fedblade.participations._random import drawn_by_size
from fedblade.participations._view import Ints, ParticipationView


@participations.register(paper="arXiv:2010.01243")
def power_of_choice(view: ParticipationView, candidates: int | Literal["auto"] = "auto") -> Ints:
    """Of `candidates` drawn in proportion to their samples, the clients with the largest loss.

    This is π_pow-d of the paper, with d = `candidates` and m = `federation.clients_per_round`. "auto" is 2m, or all
    clients if there are fewer. Where the losses come from: before the round every candidate receives the current global
    model and reports its mean cross-entropy over all its training samples, without augmentation. The bytes of these
    messages count in the round. Of equal losses the smaller id goes first; in the paper a draw decides. The paper
    averages the chosen clients with equal weights, which is `federation.weighting = "uniform"`.
    """
    most = int(np.count_nonzero(view.sizes))
    number = min(2 * view.per_round, most) if candidates == "auto" else candidates
    if not view.per_round <= number <= most:
        raise Misconfigured(
            f"participation.candidates = {number} of participation 'power_of_choice' must be at least "
            f"federation.clients_per_round = {view.per_round} and at most {most}, the number of clients with samples."
        )
    drawn = np.sort(drawn_by_size(view, number))
    losses = view.losses(drawn)
    # A client that did not answer comes last.
    order = np.argsort(-np.where(np.isnan(losses), -np.inf, losses), kind="stable")
    return drawn[order[: view.per_round]]
