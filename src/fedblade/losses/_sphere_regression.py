"""Sphere regression: cosines with the class vectors should be 1 for the true class and 0 for other classes."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView
from fedblade.losses._masking import mean_of_real, real_rows
from fedblade.losses._shapes import check_labels, check_mask, check_matrix


def sphere_regression(logits: Tensor, labels: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Mean over samples and classes of (ℓ_c - 1{c = y})² (SphereFed, local objective).

    `logits [batch, classes]` ℓ are the cosines w_cᵀz/‖z‖ with orthonormal class vectors. Deviations: none.
    """
    check_matrix("logits", logits, "[batch, classes]")
    check_labels(labels, logits)
    check_mask(mask, logits)
    classes = torch.arange(logits.shape[1], device=labels.device)
    targets = (real_rows(labels, mask)[:, None] == classes).to(logits.dtype)
    return mean_of_real((real_rows(logits, mask) - targets).square().mean(1), mask)


@losses.register("sphere_regression", paper="arXiv:2207.09413")
@dataclass(frozen=True, kw_only=True)
class SphereRegression(Term):
    """Squared error of the head's cosines, see `sphere_regression`."""

    name: ClassVar[str] = "supervised"
    supervised: ClassVar[bool] = True

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        return TermValue(sphere_regression(view.logits, view.labels, mask=view.mask))
