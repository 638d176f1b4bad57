"""Client drift: how far local training moves from the received model, and how far clients agree in direction."""

import math
from collections.abc import Mapping

import torch

from fedblade.core.fields import Field
from fedblade.core.metric import Metric, MetricResult
from fedblade.core.registry import metrics
from fedblade.core.sums import Sum
from fedblade.core.tree import Tree
from fedblade.core.views import EndView
from fedblade.diagnostics._vectors import mean_pair_cosine, quotient

FLOOR = 1e-12
"""An update shorter than this has no direction; its cosine with other updates is 0."""


_FIELDS = (
    Field(
        "update_cosine",
        "Agreement of the clients' updates",
        "cosine",
        "The mean cosine between the updates of two clients of a round: 1 if all pull the same way, 0 if their updates "
        "have nothing in common, below 0 if they undo each other.",
        -1.0,
        1.0,
        "cosine of updates",
        number_format=".2f",
        subject="clients",
    ),
    Field(
        "drift_norm",
        "How far clients move",
        "distance",
        "The mean length of a client's update, from the model it received to the one it returns. Long updates "
        "do no harm by themselves; long updates in different directions do.",
        short="client drift (norm)",
        subject="clients",
    ),
    Field(
        "drift_relative",
        "How far clients move, relative",
        "share of the model",
        "The mean length of a client's update as a share of the length of the model it received.",
        short="client drift (share of the model)",
        subject="clients",
        main=False,
    ),
)


@metrics.register("drift")
def drift() -> Metric:
    """Length of the clients' updates, absolute and relative to the received model, and the cosine between updates.

    With Δ_k = w_k − w over the parameters that travel: `drift_norm` = mean_k ‖Δ_k‖, `drift_relative` = drift_norm/‖w‖,
    `update_cosine` = mean over k≠l of cos(Δ_k, Δ_l). All are NaN if nothing travels; the cosine is NaN for one client.
    """
    return Metric((), _finish, (_UPDATES,), fields=_FIELDS)


def _of_updates(view: EndView) -> Tree:
    """Length and direction of a client's update, as one vector: one large tensor is faster than many small ones."""
    names = [name for name in view.params if name in view.shared]
    one = torch.ones((), dtype=torch.float64, device=view.counts.device)
    if not names:
        return {"clients": one}
    anchor = _flat(view.anchor, names)
    update = _flat(view.params, names) - anchor
    length = update.norm()
    return {
        "clients": one,
        "update": length,
        "moved": (length > FLOOR).to(torch.float64),
        "anchor": anchor.norm(),
        "direction": torch.where(length > FLOOR, 1 / length.clamp(min=FLOOR), 0.0) * update,
    }


def _flat(tree: Tree, names: list[str]) -> torch.Tensor:
    return torch.cat([tree[name].detach().reshape(-1) for name in names]).to(torch.float64)


_UPDATES = Sum("updates", _of_updates, bound=1e6)


def _finish(totals: Mapping[str, Tree]) -> MetricResult:
    sums = totals[_UPDATES.name]
    if "direction" not in sums:
        return dict.fromkeys(("drift_norm", "drift_relative", "update_cosine"), math.nan)
    square = sums["direction"].square().sum()
    return {
        "drift_norm": quotient(sums["update"], sums["clients"]),
        "drift_relative": quotient(sums["update"], sums["anchor"]),
        "update_cosine": float(mean_pair_cosine(square, sums["moved"], sums["clients"])),
    }
