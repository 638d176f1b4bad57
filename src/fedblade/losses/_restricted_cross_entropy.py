"""Restricted cross-entropy: logits of classes that the client lacks are scaled down and so pushed away less."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView
from fedblade.losses._checks import check_choice, check_not_negative
from fedblade.losses._cross_entropy import cross_entropy
from fedblade.losses._shapes import check_counts, check_matrix

Weights = Literal["paper", "authors"]
WEIGHTS: tuple[Weights, ...] = ("paper", "authors")


def restricted_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    counts: Tensor,
    alpha: float = 0.5,
    *,
    weights: Weights = "paper",
    mask: Tensor | None = None,
) -> Tensor:
    """Cross-entropy of ρ_c·ℓ_c with ρ_c = 1 for the client's classes and α for others (FedRS, restricted softmax).

    `logits [batch, classes]` ℓ, `counts [classes]` n; `alpha` is α. The `weights` of the authors' code are
    ρ_c = α + (1-α)·n_c/max n instead. With α = 1, with every class present (`paper`), or with equal counts
    (`authors`) this is plain cross-entropy bit for bit.

    Deviation: the paper's logits have no bias; if the head has a bias, it is scaled too.
    """
    check_matrix("logits", logits, "[batch, classes]")
    check_counts(counts, logits.shape[1])
    check_choice("weights", weights, WEIGHTS)
    if weights == "paper":
        factors = torch.where(counts > 0, logits.new_ones(()), alpha)
    else:
        most = counts.max().clamp(min=1)
        # The same number as in the docstring, but exactly 1 for the largest class.
        factors = (1 - (1 - alpha) * ((most - counts).double() / most)).to(logits.dtype)
    return cross_entropy(logits * factors, labels, mask=mask)


@losses.register("restricted_cross_entropy", paper="doi:10.1145/3447548.3467254")
@dataclass(frozen=True, kw_only=True)
class RestrictedCrossEntropy(Term):
    """Cross-entropy of the head's logits, restricted to the client's classes; see `restricted_cross_entropy`."""

    name: ClassVar[str] = "supervised"
    supervised: ClassVar[bool] = True
    alpha_rs: float = 0.5
    weights: Weights = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative("alpha_rs", self.alpha_rs, 0.5)
        check_choice("weights", self.weights, WEIGHTS)

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        value = restricted_cross_entropy(
            view.logits, view.labels, view.counts, self.alpha_rs, weights=self.weights, mask=view.mask
        )
        return TermValue(value)
