"""Regression of cosines: to 1 with the class vector of a sample, and in sphere regression to 0 with all others."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView
from fedblade.heads import class_vectors, cosine
from fedblade.losses._masking import mean_of_real, real_rows
from fedblade.losses._shapes import check_etf, check_labels, check_mask, check_matrix


def dot_regression(features: Tensor, labels: Tensor, etf: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Mean over samples of ½(cos(z, v_y) - 1)², in [0, 2] (Yang et al. 2022; FedDr+, Sec. 2.2, L_DR).

    `features [batch, dim]`, `etf [dim, classes]`. Only the cosine with the class of the sample is computed. A zero
    feature has cosine 0 and no gradient; the formula does not define them.
    """
    check_matrix("features", features)
    check_labels(labels, features)
    check_etf(etf, features.shape[1])
    check_mask(mask, features)
    targets = etf.mT[real_rows(labels, mask)]
    return mean_of_real((cosine(real_rows(features, mask), targets) - 1).square() / 2, mask)


@losses.register("dot_regression", paper="arXiv:2203.09081")
@dataclass(frozen=True, kw_only=True)
class DotRegression(Term):
    """Pull the projected features to the class vectors `etf` of the head, see `dot_regression`."""

    name: ClassVar[str] = "supervised"
    supervised: ClassVar[bool] = True

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        return TermValue(
            dot_regression(view.output.projected, view.labels, class_vectors(view.fixed["etf"]), mask=view.mask)
        )


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
