"""How large the numbers of a reply may be: by the declared bounds, and by the samples of the client.

Every check returns the reason why a reply is refused, or None.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree
from fedblade.core.untrusted_text import short_repr

_IDLE, _SKIPPED = "count_idle_clients", "count_skipped_singletons"
_MAX_COUNT_PER_STEP = 1e6
"""What one step may add to a counter: more than any network has features."""
_MAX_SAMPLES = 10**9
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ExpectedWork:
    """What a round asks of a client, computed from the client's class counts alone.

    `counts` are samples per class [classes] in float64, `skipped` counts the batches of one sample that are left out.
    """

    counts: Tensor
    steps: int
    skipped: int
    weight: float

    @property
    def is_idle(self) -> bool:
        """Whether the client has no step to make and therefore nothing to send."""
        return self.steps == 0

    def max_count(self, counter: str) -> float:
        """The most that the client may add to a counter of its log."""
        known = {_IDLE: float(self.is_idle), _SKIPPED: float(self.skipped)}
        return known.get(counter, self.steps * _MAX_COUNT_PER_STEP)


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


def measurement_violation(name: str, tree: Tree, data_pass: DataPass) -> str | None:
    """The totals of a pass are within its bound, count whole samples and agree with one another."""
    violation = bound_violation(name, tree, data_pass.bound, may_diverge="loss")
    if violation is None and "count" in tree:
        count = tree["count"]
        if bool(((count < 0) | (count != count.floor())).any()) or float(count.sum()) > _MAX_SAMPLES:
            violation = f"'{name}/count' is not a whole number of samples from 0 to {_MAX_SAMPLES}"
    if violation is None and data_pass.check is not None:
        contradiction = data_pass.check(tree)
        violation = None if contradiction is None else f"'{name}' cannot be: {contradiction}"
    return violation
