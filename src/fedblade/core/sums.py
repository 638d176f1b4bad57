"""Named sums: all that leaves a client.

A payload is a tree that is already multiplied by the client's weight, so that the server only adds and then divides.
Therefore streaming, all-reduce and secure aggregation need no method code.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fedblade.core.tree import Tree, tree_map
from fedblade.core.views import EndView, StepView

Reduce = Literal["sum", "max", "each"]
_MERGE: Mapping[Reduce, Callable[..., Tensor]] = {
    "sum": torch.add,
    "max": torch.maximum,
    "each": lambda a, b: torch.cat([a, b]),
}
_OVER_CLIENTS: Mapping[Reduce, Callable[[Tensor], Tensor]] = {
    "sum": lambda by_client: by_client[0] if len(by_client) == 1 else by_client.sum(0),
    "max": lambda by_client: by_client.amax(0),
    "each": lambda by_client: by_client,
}


@dataclass(frozen=True)
class DataPass:
    """A pass over a data set in evaluation mode; the trees that `of` returns for the batches are added in float64.

    The same mechanism makes prototypes on a client and metrics on a test set. An `augmented` pass sees augmented
    samples as training does, with draws of its own. `of` must leave out samples that `view.mask` masks, because engines
    pad batches. With `by_round` it may read `view.round`; without it engines may capture the pass once for all rounds.
    With `anchored` the view's `teachers` have the output of the received model under `Teacher()`; only passes of sums
    may ask for it.

    Totals from another machine are accepted only if no entry exceeds `bound`, if the entries of a leaf `count` are
    whole numbers from 0 on, and if `check` returns no objection.
    """

    name: str
    of: Callable[[StepView], Tree]
    augmented: bool = False
    by_round: bool = False
    anchored: bool = False
    bound: float = 1e30
    check: Callable[[Tree], str | None] | None = None


@dataclass(frozen=True)
class Sent:
    """What a server knows of a payload: the client's weight and effective steps by the plan, and the sums it sent.

    `counts` are the client's samples per class [classes], `anchor` the parameters that the client received.
    """

    weight: float
    effective_steps: float
    sums: Mapping[str, Tree]
    counts: Tensor
    anchor: Tree


@dataclass(frozen=True)
class Sum:
    """One named payload: `of(view)` gives a client's contribution.

    `bound` is the largest absolute value of an entry, for fixed-point secure sums. With `by_class` the first axis is
    the class, and entries of classes that the client has no samples of are zero and cost no bytes. `reduce="max"` is
    for counters that are not additive. `reduce="each"` keeps the clients apart on a new first axis, in ascending client
    id. Such a sum shows single clients to the server, and secure sums refuse it.

    A sum that follows from the plan or from the client's other sums says so by `implied`, which computes it. A server
    of nodes refuses a payload that says otherwise.

    `passes` go over the client's training data. `measured` is for diagnostics only: passes of the client's trained
    model over the samples that the global model is measured on.
    """

    name: str
    of: Callable[[EndView], Tree]
    bound: float
    passes: tuple[DataPass, ...] = ()
    by_class: bool = False
    reduce: Reduce = "sum"
    measured: tuple[DataPass, ...] = ()
    implied: Callable[[Sent], Tree] | None = None


@dataclass(frozen=True)
class Sums:
    """Payloads of one client or of many, added in float64."""

    trees: Mapping[str, Tree] = field(default_factory=dict)
    reduce: Mapping[str, Reduce] = field(default_factory=dict)

    @staticmethod
    def over(declared: Iterable[Sum], by_client: Mapping[str, Tree]) -> "Sums":
        """The payloads of many clients added up, from their contributions [clients, …]."""
        reduce = {sum_.name: sum_.reduce for sum_ in declared}
        return Sums({name: tree_map(_OVER_CLIENTS[reduce[name]], tree) for name, tree in by_client.items()}, reduce)

    def arranged(self, order: Sequence[int]) -> "Sums":
        """The same sums; where clients are kept apart, they are put in this order."""
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
    return {sum_.name: tree_map(_as_float64, sum_.of(view)) for sum_ in declared}


def payload_bytes(declared: Iterable[Sum], sums: Sums, held_classes: int, float_bytes: int) -> int:
    """Bytes of a client's upload: every number in the model's precision, without the classes that the client lacks."""
    total = 0
    for sum_ in declared:
        for leaf in sums[sum_.name].values():
            classes = leaf.shape[int(sum_.reduce == "each") :][:1]
            share = held_classes / classes[0] if sum_.by_class and classes else 1.0
            total += round(leaf.numel() * share) * float_bytes
    return total


def _as_float64(leaf: Tensor) -> Tensor:
    return leaf.detach().to(torch.float64)


def own_weight(view: EndView) -> Tree:
    """The client's weight a_k. Most payloads are multiplied by it, and the server divides by the sum of weights."""
    return {"weight": torch.as_tensor(view.weight, dtype=torch.float64)}
