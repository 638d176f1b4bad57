"""How large the numbers of a reply may be, by what was declared and by what its client holds."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree
from fedblade.engines.nodes._in_short import in_short

_IDLE, _SKIPPED = "count_idle_clients", "count_skipped_singletons"
_MOST_COUNTED = 1e6
"""What one step may add to a counter: more than any network has features."""
_MOST_SAMPLES = 10**9
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Due:
    """What a round asks of a client by its own counts: samples per class [classes] in float64, steps, and its weight.

    `skipped` counts the batches that are left out because they hold one sample.
    """

    counts: Tensor
    steps: int
    skipped: int
    weight: float

    @property
    def is_idle(self) -> bool:
        """Whether there is no step to make, so that nothing can be sent."""
        return self.steps == 0

    def most(self, counter: str) -> float:
        """What the client may add to a counter of its log."""
        known = {_IDLE: float(self.is_idle), _SKIPPED: float(self.skipped)}
        return known.get(counter, self.steps * _MOST_COUNTED)


def beyond(name: str, tree: Tree, bound: float, *, diverged: str | None = None) -> str | None:
    """Whether an entry is not finite, which the leaf `diverged` may be, or larger than it may be."""
    for leaf, tensor in tree.items():
        if not bool(torch.isfinite(tensor).all()):
            if leaf == diverged:
                continue
            return f"'{name}/{leaf}' holds NaN or infinity"
        # A sum may round up to just above what it cannot pass.
        if tensor.numel() and float(tensor.abs().max()) > bound * (1 + _ROUNDING):
            return f"'{name}/{leaf}' reaches {float(tensor.abs().max()):.3g}; the largest allowed is {bound:g}"
    return None


def wrong_weight(name: str, tree: Tree, due: Due, *, exact: bool) -> str | None:
    """Sums are divided by weights: the usual one follows from the client's samples, a method's own has a bound."""
    for leaf, tensor in tree.items():
        largest = due.weight if exact else max(1.0, float(due.counts.sum()), float(due.steps))
        if exact and bool((tensor != due.weight).any()):
            return f"'{name}/{leaf}' is {in_short(tensor.tolist())}; the client's samples give {due.weight:.6g}"
        if not due.is_idle and not bool(((tensor > 0) & (tensor <= largest)).all()):
            return f"'{name}/{leaf}' is {in_short(tensor.tolist())}; expected above 0 and at most {largest:g}"
    return None


def wrong_classes(name: str, tree: Tree, counts: Tensor) -> str | None:
    """Rows of classes that the client does not hold are zero, and it counts no more samples than it holds."""
    for leaf, tensor in tree.items():
        if bool((tensor[counts == 0] != 0).any()):
            return f"'{name}/{leaf}' has numbers for a class of which the client holds no sample"
        if leaf == "count" and not bool(((tensor >= 0) & (tensor <= counts)).all()):
            return f"'{name}/{leaf}' counts samples that the client does not hold"
    return None


def wrong_measure(name: str, tree: Tree, measured: DataPass) -> str | None:
    """Totals of a pass are as large as it declares, count whole samples and agree with one another."""
    wrong = beyond(name, tree, measured.bound, diverged="loss")
    if wrong is None and "count" in tree:
        count = tree["count"]
        if bool(((count < 0) | (count != count.floor())).any()) or float(count.sum()) > _MOST_SAMPLES:
            wrong = f"'{name}/count' holds what is no number of samples from 0 to {_MOST_SAMPLES}"
    if wrong is None and measured.check is not None:
        said = measured.check(tree)
        wrong = None if said is None else f"'{name}' cannot be: {said}"
    return wrong
