"""Dot regression: pull features to their class vector, without pushing them from other vectors."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView
from fedblade.heads import cosine
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
        return TermValue(dot_regression(view.output.projected, view.labels, view.fixed["etf"], mask=view.mask))
