"""Residual cross-entropy: a personal head learns to correct a generic head."""

from dataclasses import dataclass
from typing import ClassVar

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView
from fedblade.heads import DualLinearHead
from fedblade.losses._cross_entropy import cross_entropy
from fedblade.losses._masking import real_rows

_HEAD = DualLinearHead()


@losses.register("residual_cross_entropy", paper="arXiv:2107.00778")
@dataclass(frozen=True, kw_only=True)
class ResidualCrossEntropy(Term):
    """Cross-entropy of sg G(z) + P(sg z) with a dual linear head (FedRoD): the gradient reaches only P.

    Deviation: none; P is linear, see `DualLinearHead`.
    """

    name: ClassVar[str] = "personal"

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        residual = _HEAD.residual(view.params, real_rows(view.features.detach(), view.mask))
        return TermValue(cross_entropy(view.logits.detach() + residual, view.labels, mask=view.mask))
