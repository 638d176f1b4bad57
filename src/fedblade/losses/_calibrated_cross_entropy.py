"""Calibrated cross-entropy: the rarer a class is on the client, the wider the margin of its logit must be."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView
from fedblade.losses._checks import check_choice, check_not_negative
from fedblade.losses._cross_entropy import cross_entropy
from fedblade.losses._masking import mean_of_real, real_rows
from fedblade.losses._shapes import check_counts, check_labels, check_mask, check_matrix

Denominator = Literal["standard", "exclude_true"]


def calibrated_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    counts: Tensor,
    tau: float = 1.0,
    *,
    denominator: Denominator = "standard",
    mask: Tensor | None = None,
) -> Tensor:
    """Cross-entropy of ℓ_c - τ·n_c^(-1/4) over the classes that the client holds (FedLC, loss L_Cal; `tau` is τ).

    `logits [batch, classes]` ℓ, `counts [classes]` n. A class with n_c = 0 is left out of the softmax, which is the
    limit n_c → 0; a sample of such a class has an infinite loss.

    Deviation: the paper's denominator leaves out the true class, which makes the loss unbounded below. That is
    `denominator="exclude_true"`: mean of log Σ_{c≠y} e^{ℓ'_c} - ℓ'_y for the shifted logits ℓ'. For a client with a
    single class the sum is empty; its loss is 0 with zero gradient.
    """
    check_choice("denominator", denominator, ("standard", "exclude_true"))
    check_matrix("logits", logits, "[batch, classes]")
    check_labels(labels, logits)
    check_counts(counts, logits.shape[1])
    check_mask(mask, logits)
    held = counts > 0
    margin = torch.where(held, counts, 1).to(torch.promote_types(logits.dtype, torch.float32)) ** -0.25
    shifted = torch.where(held, logits - (tau * margin).to(logits.dtype), -torch.inf)
    if denominator == "standard":
        return cross_entropy(shifted, labels, mask=mask)
    return _without_true_class(shifted, labels, mask)


def _without_true_class(logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
    """Mean of log Σ_{c≠y} e^{ℓ_c} - ℓ_y; a sample without other classes of finite logit counts as 0."""
    rows, true_class = real_rows(logits, mask), real_rows(labels, mask)[:, None]
    classes = torch.arange(logits.shape[1], device=labels.device)
    others = torch.where(classes == true_class, -torch.inf, rows)
    # The gradient of the logarithm of an empty sum is NaN, even if `where` discards its value.
    empty = (others == -torch.inf).all(1, keepdim=True)
    log_sum = torch.where(empty, 0.0, others).logsumexp(1)
    return mean_of_real(torch.where(empty[:, 0], 0.0, log_sum - rows.gather(1, true_class)[:, 0]), mask)


@losses.register("calibrated_cross_entropy", paper="arXiv:2209.00189")
@dataclass(frozen=True, kw_only=True)
class CalibratedCrossEntropy(Term):
    """Cross-entropy of the head's logits with margins from the client's counts; see `calibrated_cross_entropy`."""

    name: ClassVar[str] = "supervised"
    supervised: ClassVar[bool] = True
    tau_lc: float = 1.0
    denominator: Denominator = "standard"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("denominator", self.denominator, ("standard", "exclude_true"))
        check_not_negative("tau_lc", self.tau_lc, 1.0)

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        value = calibrated_cross_entropy(
            view.logits, view.labels, view.counts, self.tau_lc, denominator=self.denominator, mask=view.mask
        )
        return TermValue(value)
