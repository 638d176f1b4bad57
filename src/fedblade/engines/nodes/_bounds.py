"""How large the numbers of a reply may be: by the declared bounds, and by the samples of the client.

Every check returns the reason why a reply is refused, or None.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree, tree_norm
from fedblade.core.untrusted_text import short_repr

_IDLE, _SKIPPED = "count_idle_clients", "count_skipped_singletons"
_MAX_COUNT_PER_STEP = 1e6
"""What one step may add to a counter: more than any network has features."""
_MAX_SAMPLES = 10**9
_MAX_LOSS = 1e9
"""The largest finite mean loss of a test sample that is believed."""
_ROUNDING = 1e-9
_COMPUTED_TWICE, _CANCELLED = 1e-6, 1e-12
"""Differences between a number of a node and the same number computed by the server: relative to the number, and to the
largest number of its tensor, because numbers near zero are differences of larger ones."""


@dataclass(frozen=True)
class ExpectedWork:
    """What a round asks of a client, computed from the client's class counts alone.

    `counts` are samples per class [classes] in float64, `phase_steps` the local steps of each phase. `skipped` counts
    the batches of one sample that are left out. `effective_steps` are the steps of the received model, corrected for
    momentum.
    """

    counts: Tensor
    phase_steps: tuple[int, ...]
    skipped: int
    weight: float
    effective_steps: float = 0.0

    @property
    def steps(self) -> int:
        """The local steps of all phases."""
        return sum(self.phase_steps)

    @property
    def is_idle(self) -> bool:
        """Whether the client has no step to make and therefore nothing to send."""
        return self.steps == 0

    def max_count(self, counter: str) -> float:
        """The most that the client may add to a counter of its log."""
        known = {_IDLE: float(self.is_idle), _SKIPPED: float(self.skipped)}
        return known.get(counter, self.steps * _MAX_COUNT_PER_STEP)


@dataclass(frozen=True)
class LengthLimit:
    """How long the sums with the shape of the model may be.

    `names` are these sums, as `kind/name`. A length is a norm divided by `model_length` and by the client's weight if
    that is above 1; the model counts as at least 1 long. `setting` is the setting that gives `longest`.
    """

    names: frozenset[str] = frozenset()
    model_length: float = 1.0
    longest: float = math.inf
    setting: str = ""

    def length(self, tree: Tree, weight: float) -> float:
        """The length of a sum."""
        return float(tree_norm(tree)) / (self.model_length * max(1.0, weight))

    def largest(self, trees: Mapping[str, Tree], weight: float) -> float | None:
        """The length of the longest sum with the shape of the model; None if there is no such sum."""
        return max((self.length(tree, weight) for name, tree in trees.items() if name in self.names), default=None)

    def violation(self, name: str, tree: Tree, weight: float) -> str | None:
        """A sum with the shape of the model is not longer than the limit."""
        if name not in self.names or (length := self.length(tree, weight)) <= self.longest:
            return None
        return f"'{name}' has length {length:.3g}; the longest allowed is {self.longest:g} ({self.setting})"


def bound_violation(name: str, tree: Tree, bound: float, *, may_diverge: str | None = None) -> str | None:
    """Every entry is finite and within the bound; the leaf `may_diverge` may hold NaN or infinity."""
    for leaf, tensor in tree.items():
        if not bool(torch.isfinite(tensor).all()):
            if leaf == may_diverge:
                continue
            return f"'{name}/{leaf}' holds NaN or infinity"
        # Rounding may lift a sum just above its bound.
        if tensor.numel() and float(tensor.abs().max()) > bound * (1 + _ROUNDING):
            return f"'{name}/{leaf}' reaches {float(tensor.abs().max()):.3g}; the largest allowed is {bound:g}"
    return None


def weight_violation(name: str, tree: Tree, work: ExpectedWork, *, exact: bool) -> str | None:
    """The usual weight follows from the client's samples (`exact`); a weight that a method defines has a bound."""
    for leaf, tensor in tree.items():
        largest = work.weight if exact else max(1.0, float(work.counts.sum()), float(work.steps))
        if exact and bool((tensor != work.weight).any()):
            return f"'{name}/{leaf}' is {short_repr(tensor.tolist())}; the client's samples give {work.weight:.6g}"
        if not work.is_idle and not bool(((tensor > 0) & (tensor <= largest)).all()):
            return f"'{name}/{leaf}' is {short_repr(tensor.tolist())}; expected above 0 and at most {largest:g}"
    return None


def class_violation(name: str, tree: Tree, counts: Tensor) -> str | None:
    """A class sum is zero for classes that the client does not hold, and counts at most the client's samples."""
    for leaf, tensor in tree.items():
        if bool((tensor[counts == 0] != 0).any()):
            return f"'{name}/{leaf}' has numbers for a class of which the client holds no sample"
        if leaf == "count" and not bool(((tensor >= 0) & (tensor <= counts)).all()):
            return f"'{name}/{leaf}' counts samples that the client does not hold"
    return None


def implied_violation(name: str, tree: Tree, implied: Tree) -> str | None:
    """A sum that follows from the plan and from the client's other sums is what the server has computed."""
    for leaf, tensor in tree.items():
        expected = implied[leaf].to(tensor)
        rounding = _CANCELLED * float(expected.abs().max())
        if not torch.allclose(tensor, expected, rtol=_COMPUTED_TWICE, atol=rounding):
            shown, computed = (short_repr(given.flatten().tolist()) for given in (tensor, expected))
            return f"'{name}/{leaf}' is {shown}; the client's plan and its other sums give {computed}"
    return None


def measurement_violation(name: str, tree: Tree, data_pass: DataPass, most: int | None) -> str | None:
    """The totals of a pass are within its bound, count at most `most` whole samples and agree with one another."""
    violation = bound_violation(name, tree, data_pass.bound, may_diverge="loss")
    if violation is None and "count" in tree:
        violation = _count_violation(name, tree, most)
    if violation is None and data_pass.check is not None:
        contradiction = data_pass.check(tree)
        violation = None if contradiction is None else f"'{name}' cannot be: {contradiction}"
    return violation


def _count_violation(name: str, tree: Tree, most: int | None) -> str | None:
    """What is impossible in the count or the loss of a measurement over `most` samples; None if nothing is."""
    count = tree["count"]
    total = float(count.sum())
    if bool(((count < 0) | (count != count.floor())).any()) or total > _MAX_SAMPLES:
        return f"'{name}/count' is not a whole number of samples from 0 to {_MAX_SAMPLES}"
    if most is not None and total > most:
        return f"'{name}/count' counts {total:.0f} samples; the client has {most} to measure on"
    loss = float(tree["loss"].sum()) if "loss" in tree else 0.0
    if math.isfinite(loss) and loss > _MAX_LOSS * total:
        return f"'{name}/loss' is {loss / max(total, 1.0):.3g} per sample; the largest believed is {_MAX_LOSS:g}"
    return None
