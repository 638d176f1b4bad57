"""Balanced cross-entropy: the softmax weighted by the client's class counts."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView
from fedblade.losses._checks import check_floor, check_not_negative
from fedblade.losses._cross_entropy import cross_entropy
from fedblade.losses._masking import real_rows
from fedblade.losses._shapes import check_counts, check_labels, check_mask, check_matrix


def balanced_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    counts: Tensor,
    gamma: float = 1.0,
    floor: float = 1,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """Cross-entropy with classes weighted by their number of samples on the client.

    Mean of -log(n_y^γ·e^{ℓ_y} / Σ_c n_c^γ·e^{ℓ_c}) for `logits [batch, classes]` and `counts [classes]` n, computed as
    plain cross-entropy of ℓ + γ·log n (FedETF, Eq. 6; FedBlade, Eq. 12; `gamma` is γ).

    Deviation: the formula removes a class that the client lacks (n_c = 0) from the softmax (`floor` 0); the authors'
    code gives it the count 1 (`floor` 1). With `gamma` 0 this is plain cross-entropy for any floor.

    With `floor` 0 a sample of a class with count 0 would have an infinite loss and is refused. The check reads values
    of tensors. Where that is impossible or slow (inside `torch.func` or `compile`, on an accelerator) there is no
    check, and the loss is infinite.
    """
    check_floor(floor)
    check_matrix("logits", logits, "[batch, classes]")
    check_counts(counts, logits.shape[1])
    if gamma == 0:
        return cross_entropy(logits, labels, mask=mask)
    if floor == 0:
        check_labels(labels, logits)
        check_mask(mask, logits)
        _check_held(labels, counts, mask)
    return cross_entropy(logits + gamma * log_counts(counts, floor, logits.dtype), labels, mask=mask)


def _check_held(labels: Tensor, counts: Tensor, mask: Tensor | None) -> None:
    """Refuse real samples of classes that the client lacks, if the values of the tensors can be read at no cost."""
    on_cpu = labels.device.type == counts.device.type == "cpu"
    if not on_cpu or torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling():
        return
    lacking = counts[real_rows(labels, mask)] <= 0
    if bool((lacking if mask is None else lacking & (mask != 0)).any()):
        raise Misconfigured(
            "a label whose class has count 0 given with floor 0, which removes the class from the softmax. "
            "Take the counts of the client's data, or floor=1."
        )


def log_counts(counts: Tensor, floor: float, dtype: torch.dtype) -> Tensor:
    """Logarithm of max(counts, floor): -inf for absent classes when the floor is 0."""
    return counts.to(dtype).clamp(min=floor).log()


@losses.register("balanced_cross_entropy", paper="arXiv:2303.10058, Eq. 6")
@dataclass(frozen=True, kw_only=True)
class BalancedCrossEntropy(Term):
    """Cross-entropy of the head's logits, balanced by the client's class counts; see `balanced_cross_entropy`."""

    name: ClassVar[str] = "supervised"
    supervised: ClassVar[bool] = True
    gamma: float = 1.0
    floor: float = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_floor(self.floor)
        check_not_negative("gamma", self.gamma, 1.0)

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        return TermValue(
            balanced_cross_entropy(view.logits, view.labels, view.counts, self.gamma, self.floor, mask=view.mask)
        )
