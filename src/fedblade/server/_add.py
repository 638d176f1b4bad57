"""Additions to trees in float64, and numbers of the server for the history."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedblade.core.method import InitView
from fedblade.core.state import ServerState
from fedblade.core.sums import Sums
from fedblade.core.tree import Tree


def add_to(tree: Tree, change: Mapping[str, Tensor]) -> Tree:
    """The tree with `change` added in float64, then cast; tensors that `change` lacks do not change."""
    return tree | {name: (tree[name].double() + leaf).to(tree[name].dtype) for name, leaf in change.items()}


def mean_update(sums: Sums) -> Tree:
    """The weighted mean Δ̄ of the clients' updates, in float64."""
    total = sums.scalar("weight")
    return {name: change / total for name, change in sums["delta"].items()}


def accumulate(state: ServerState, sums: Sums, name: str) -> ServerState:
    """Add the sum `name` to the server state of that name."""
    return state.replace(extra={**state.extra, name: add_to(state.extra[name], sums[name])})


def one(view: InitView) -> Tree:  # noqa: ARG001 - initial state is always a function of a view
    """A number that starts as 1, in float64."""
    return {"value": torch.ones((), dtype=torch.float64)}


def keep_number(state: ServerState, name: str, value: float) -> ServerState:
    """Store `value` as the number `name` of the server state; its initial value is that of `one`."""
    return state.replace(extra={**state.extra, name: {"value": torch.tensor(value, dtype=torch.float64)}})


def scale_of(state: ServerState) -> float:
    """The factor of a cosine head's logits, trained or fixed."""
    return float((state.params | state.fixed)["scale"])
