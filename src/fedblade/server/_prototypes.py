"""Global class prototypes: p̄_c = Σ_k (class sums) / Σ_k (class counts) over the cohort, and heads made of them."""

import torch

from fedblade.core.method import InitView
from fedblade.core.state import ServerState
from fedblade.core.sums import Sums
from fedblade.core.tree import Tree
from fedblade.heads import normalise
from fedblade.server._average import average


def no_prototypes(view: InitView) -> Tree:
    """The state before there are prototypes: `mean [classes, dim]` zeros and `has [classes]` all false."""
    like = next(iter(view.params.values()))
    return {
        "mean": torch.zeros(view.num_classes, view.dim, dtype=like.dtype, device=like.device),
        "has": torch.zeros(view.num_classes, dtype=torch.bool, device=like.device),
    }


def update_prototypes(state: ServerState, sums: Sums, *, carry_over: bool = True, momentum: float = 0.0) -> ServerState:
    """Prototype step p̄_c ← m·p̄_c + (1−m)·(mean of class c over the cohort) in float64, then cast; m is `momentum`.

    The first prototype of a class is its mean. A class that no client of the cohort holds keeps its prototype, or
    loses it without `carry_over`.
    """
    old, new = state.extra["prototypes"], sums["prototypes"]
    seen = new["count"] > 0
    mean = new["sum"] / new["count"].clamp(min=1e-300)[:, None]
    if momentum > 0:
        mean = torch.where(old["has"][:, None], momentum * old["mean"].double() + (1 - momentum) * mean, mean)
    kept = old["has"] if carry_over else torch.zeros_like(old["has"])
    prototypes = {
        "mean": torch.where(seen[:, None], mean.to(old["mean"]), old["mean"] * kept[:, None]),
        "has": seen | kept,
    }
    return state.replace(extra={**state.extra, "prototypes": prototypes})


def average_with_prototypes(
    state: ServerState, sums: Sums, *, carry_over: bool = True, momentum: float = 0.0
) -> ServerState:
    """Average the model and compute new prototypes; see `update_prototypes`."""
    return update_prototypes(average(state, sums), sums, carry_over=carry_over, momentum=momentum)


def num_prototypes(state: ServerState) -> float:
    """How many classes have a prototype, for the history."""
    return float(torch.count_nonzero(state.extra["prototypes"]["has"]))


def move_prototypes(state: ServerState, sums: Sums, *, rho: float) -> ServerState:
    """Prototype step P_c ← normalise(ρ·P_c + (1−ρ)·normalise(Σ_k n_{k,c} q_{k,c})) on the rows of `head.weight`.

    Reads the sum `directions`: `sum` Σ n·q and `count` Σ n. A class that no client of the cohort holds keeps its row.
    So does a class whose new row would be 0, which has no direction. With ρ = 1 the rows do not change.
    """
    if rho == 1:
        return state
    rows, sent = state.params["head.weight"], sums["directions"]
    moved = rho * rows.double() + (1 - rho) * normalise(sent["sum"])
    moves = (sent["count"] > 0) & (moved.norm(dim=1) > 1e-12)
    new = torch.where(moves[:, None], normalise(moved).to(rows.dtype), rows)
    return state.replace(params=state.params | {"head.weight": new})
