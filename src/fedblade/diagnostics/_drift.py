"""Client drift: how far local training leads away from the received model, and in how many directions."""

import math
from collections.abc import Mapping

import torch

from fedblade.core.metric import Found, Metric
from fedblade.core.registry import metrics
from fedblade.core.sums import Sum
from fedblade.core.tree import Tree, tree_dot, tree_norm, tree_select
from fedblade.core.views import EndView
from fedblade.diagnostics._vectors import mean_pair_cosine, quotient

FLOOR = 1e-12
"""An update shorter than this has no direction; its cosine with any other is 0."""


@metrics.register("drift")
def drift() -> Metric:
    """Length of the clients' updates, the same relative to the received model, and the cosine between updates.

    With Δ_k = w_k − w over the parameters that travel: `drift_norm` = mean_k ‖Δ_k‖, `drift_relative` = drift_norm/‖w‖,
    `update_cosine` = mean over k≠l of cos(Δ_k, Δ_l). NaN where nothing travels, and the cosine with one client.
    """
    return Metric((), _finish, (_LENGTHS, _DIRECTIONS))


def _update(view: EndView) -> Tree:
    return {
        name: leaf.detach().to(torch.float64) - view.anchor[name].detach().to(torch.float64)
        for name, leaf in view.params.items()
        if name in view.shared
    }


def _of_lengths(view: EndView) -> Tree:
    length = tree_norm(_update(view))
    return {
        "update": length,
        "moved": (length > FLOOR).to(torch.float64),
        "anchor": tree_norm(tree_select(view.anchor, view.shared)),
        "clients": torch.ones_like(length),
    }


def _of_directions(view: EndView) -> Tree:
    update = _update(view)
    length = tree_norm(update)
    scale = torch.where(length > FLOOR, 1 / length.clamp(min=FLOOR), 0.0)
    return {name: scale * leaf for name, leaf in update.items()}


_LENGTHS = Sum("update_lengths", _of_lengths, bound=1e6)
_DIRECTIONS = Sum("update_directions", _of_directions, bound=1.0)


def _finish(totals: Mapping[str, Tree]) -> Found:
    sums, directions = totals[_LENGTHS.name], totals[_DIRECTIONS.name]
    if not directions:
        return dict.fromkeys(("drift_norm", "drift_relative", "update_cosine"), math.nan)
    square = tree_dot(directions, directions)
    return {
        "drift_norm": quotient(sums["update"], sums["clients"]),
        "drift_relative": quotient(sums["update"], sums["anchor"]),
        "update_cosine": float(mean_pair_cosine(square, sums["moved"], sums["clients"])),
    }
