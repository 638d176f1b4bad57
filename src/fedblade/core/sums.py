"""Named sums: all that leaves a client.

A payload is a tree already multiplied by its weight, so the server only adds and then divides. Streaming, all-reduce
and secure aggregation therefore need no method code.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fedblade.core.finite import refuse_non_finite_sums
from fedblade.core.tree import Tree, tree_map
from fedblade.core.views import EndView, StepView

Reduce = Literal["sum", "max", "each"]
_MERGE: Mapping[Reduce, Callable[..., Tensor]] = {
    "sum": torch.add,
    "max": torch.maximum,
    "each": lambda a, b: torch.cat([a, b]),
}
_OVER_CLIENTS: Mapping[Reduce, Callable[[Tensor], Tensor]] = {
    "sum": lambda rows: rows.sum(0),
    "max": lambda rows: rows.amax(0),
    "each": lambda rows: rows,
}


@dataclass(frozen=True)
class DataPass:
    """A pass over a data set in evaluation mode whose per-batch trees are added in float64.

    The same mechanism makes prototypes on a client and metrics on a test set. An `augmented` pass sees the samples
    as training does, with draws of its own. `of` must leave out what `view.mask` masks: engines pad batches. With
    `by_round` it may read `view.round`; engines may capture a pass that does not for all rounds. With `anchored` the
    view's `teachers` have what the received model says of the batch, under `Teacher()`; only sums' passes may.

    Totals that another machine has measured are believed only if no entry passes `bound`, if those of a leaf `count`
    are whole numbers from 0 on, and if `check` has nothing to say against them.
    """

    name: str
    of: Callable[[StepView], Tree]
    augmented: bool = False
    by_round: bool = False
    anchored: bool = False
    bound: float = 1e30
    check: Callable[[Tree], str | None] | None = None


@dataclass(frozen=True)
class Sum:
    """One named payload: `of(view)` gives a client's contribution.

    `bound` is the largest absolute value an entry may reach, for fixed-point secure sums. With `by_class` the first
    axis is the class and rows of classes the client does not hold are zero, so they cost no bytes. `reduce="max"` is
    for counters that are not additive. `reduce="each"` keeps the clients apart on a new first axis, in ascending client
    id: a method that needs it shows single clients to the server, and secure sums refuse it.

    `passes` go over the client's training data. `measured` is for diagnostics alone: passes of the client's trained
    model over the samples that the global model is measured on.
    """

    name: str
    of: Callable[[EndView], Tree]
    bound: float
    passes: tuple[DataPass, ...] = ()
    by_class: bool = False
    reduce: Reduce = "sum"
    measured: tuple[DataPass, ...] = ()


@dataclass(frozen=True)
class Sums:
    """Payloads of one client or of many, added in float64; adding is all that can be done to them."""

    trees: Mapping[str, Tree] = field(default_factory=dict)
    reduce: Mapping[str, Reduce] = field(default_factory=dict)

    @staticmethod
    def of(declared: Iterable[Sum], view: EndView, client: int) -> "Sums":
        """What one client sends, checked for NaN and infinity before it can touch anything."""
        chosen = tuple(declared)
        trees = contributions(chosen, view)
        refuse_non_finite_sums(trees, client, view.round)
        apart = {
            each.name: tree_map(lambda leaf: leaf[None], trees[each.name]) for each in chosen if each.reduce == "each"
        }
        return Sums(trees | apart, {each.name: each.reduce for each in chosen})

    @staticmethod
    def over(declared: Iterable[Sum], rows: Mapping[str, Tree]) -> "Sums":
        """What clients send together, from their contributions [clients, …]."""
        reduce = {each.name: each.reduce for each in declared}
        return Sums({name: tree_map(_OVER_CLIENTS[reduce[name]], tree) for name, tree in rows.items()}, reduce)

    def arranged(self, order: Sequence[int]) -> "Sums":
        """The same with the rows of clients that are kept apart in this order."""
        trees = {
            name: tree_map(lambda leaf: leaf[list(order)], tree) if self.reduce[name] == "each" else tree
            for name, tree in self.trees.items()
        }
        return Sums(trees, self.reduce)

    def __add__(self, other: "Sums") -> "Sums":
        """Add name by name; an empty `Sums()` is the zero."""
        if not self.trees or not other.trees:
            return self if self.trees else other
        if self.trees.keys() != other.trees.keys():
            raise KeyError(f"sums differ: {sorted(self.trees.keys() ^ other.trees.keys())}")
        merged = {
            name: tree_map(_MERGE[self.reduce[name]], tree, other.trees[name]) for name, tree in self.trees.items()
        }
        return Sums(merged, self.reduce)

    def __getitem__(self, name: str) -> Tree:
        return self.trees[name]

    def __contains__(self, name: str) -> bool:
        return name in self.trees

    def scalar(self, name: str) -> float:
        """A payload that is a single number."""
        (value,) = self.trees[name].values()
        return float(value)


def contributions(declared: Iterable[Sum], view: EndView) -> dict[str, Tree]:
    """What one client adds to each sum, in float64."""
    return {each.name: tree_map(_as_float64, each.of(view)) for each in declared}


def payload_bytes(declared: Iterable[Sum], sums: Sums, held_classes: int, float_bytes: int) -> int:
    """Bytes a client uploads: every number at the model's precision, rows of classes it lacks left out."""
    total = 0
    for each in declared:
        for leaf in sums[each.name].values():
            classes = leaf.shape[int(each.reduce == "each") :][:1]
            rows = held_classes / classes[0] if each.by_class and classes else 1.0
            total += round(leaf.numel() * rows) * float_bytes
    return total


def _as_float64(leaf: Tensor) -> Tensor:
    return leaf.detach().to(torch.float64)


def own_weight(view: EndView) -> Tree:
    """a_k, by which most payloads of a client are multiplied and the server divides."""
    return {"weight": torch.as_tensor(view.weight, dtype=torch.float64)}
