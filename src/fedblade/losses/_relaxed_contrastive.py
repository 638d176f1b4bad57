"""Relaxed contrast: pull samples of a class together and push classes apart, but keep samples of a class distinct."""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView, Tap
from fedblade.heads import normalise
from fedblade.losses._checks import check_choice, check_not_negative, check_positive
from fedblade.losses._masking import mean_of_real, real_rows
from fedblade.losses._shapes import check_labels, check_mask, check_matrix

Mining = Literal["hard", "all"]
HARDEST = 2
"""How many samples of other classes hard mining keeps for each sample."""


def relaxed_contrastive(
    activations: Tensor,
    labels: Tensor,
    tau: float = 0.05,
    beta: float = 1.0,
    threshold: float = 0.7,
    *,
    mining: Mining = "hard",
    mask: Tensor | None = None,
) -> Tensor:
    """Mean over samples of SCL_i + β·Pen_i for the pooled `activations [batch, channels]` of one stage (FedRCL).

    With s_ij the cosine of two samples, p the least similar other sample of i's class and H_i the 2 most similar
    samples of other classes, SCL_i = -log(e^{s_ip/τ} / (e^{s_ip/τ} + Σ_{j∈H_i} e^{s_ij/τ})) and Pen_i is
    -log(e^{1/τ} / (e^{1/τ} + e^{s_ip/τ})) where s_ip ≥ `threshold`, else 0. This choice of pairs is from the authors'
    code; `mining="all"` averages both over every p and takes all samples of other classes as H_i.

    For the only sample of a class p is the sample itself, with s = 1 as a constant, and Pen is 0. If the batch has no
    other classes, SCL is 0. The formula defines neither case.
    """
    check_positive("tau", tau, 0.05)
    check_choice("mining", mining, ("hard", "all"))
    check_matrix("activations", activations, "[batch, channels]")
    check_labels(labels, activations)
    check_mask(mask, activations)
    pairs = _pairs(activations, labels, mask)
    mined = _mine_hard(pairs) if mining == "hard" else _mine_all(pairs)
    has_negatives = pairs.other.any(1, keepdim=True)
    # The logarithm of a sum over -inf only has no gradient.
    negatives = torch.where(has_negatives, mined.negatives, torch.zeros_like(mined.negatives)) / tau
    contrast = _softplus(negatives.logsumexp(1, keepdim=True) - mined.positives / tau)
    penalty = _softplus((mined.positives - 1) / tau)
    zero = torch.zeros_like(contrast)
    contrast = torch.where(has_negatives, contrast, zero)
    penalty = torch.where(mined.distinct & (mined.positives >= threshold), penalty, zero)
    return mean_of_real((mined.weights * (contrast + beta * penalty)).sum(1), mask)


def _softplus(x: Tensor) -> Tensor:
    """Compute log(1 + e^x); torch's function replaces it by x above 20."""
    return -functional.logsigmoid(-x)


class _Pairs(NamedTuple):
    """Cosines of all pairs, and which pairs are a sample with itself, two samples of a class, or of two classes.

    Pairs with padding are in neither `same` nor `other`.
    """

    similarity: Tensor
    itself: Tensor
    same: Tensor
    other: Tensor


class _Mined(NamedTuple):
    """Similarities with the positives of each row, their weights, whether they are other samples, the negatives."""

    positives: Tensor
    weights: Tensor
    distinct: Tensor
    negatives: Tensor


def _pairs(activations: Tensor, labels: Tensor, mask: Tensor | None) -> _Pairs:
    units = normalise(real_rows(activations, mask))
    equal = labels[:, None] == labels
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    real = torch.ones_like(equal) if mask is None else (mask[:, None] != 0) & (mask != 0)
    return _Pairs(units @ units.mT, itself, equal & ~itself & real, ~equal & real)


def _mine_hard(pairs: _Pairs) -> _Mined:
    paired = pairs.same.any(1, keepdim=True)
    lowest = torch.where(pairs.same, pairs.similarity, torch.inf).amin(1, keepdim=True)
    positives = torch.where(paired, lowest, torch.ones_like(lowest))
    candidates = torch.where(pairs.other, pairs.similarity, -torch.inf)
    negatives = candidates.topk(min(HARDEST, candidates.shape[1]), dim=1).values
    return _Mined(positives, torch.ones_like(positives), paired, negatives)


def _mine_all(pairs: _Pairs) -> _Mined:
    positives = torch.where(pairs.same, pairs.similarity, torch.ones_like(pairs.similarity))
    chosen = torch.where(pairs.same.any(1, keepdim=True), pairs.same, pairs.itself).to(positives.dtype)
    negatives = torch.where(pairs.other, pairs.similarity, -torch.inf)
    return _Mined(positives, chosen / chosen.sum(1, keepdim=True), pairs.same, negatives)


@losses.register("relaxed_contrastive", paper="arXiv:2401.04928")
@dataclass(frozen=True, kw_only=True)
class RelaxedContrastive(Term):
    """Relaxed contrast of the outputs of the body's stages, averaged over stages; see `relaxed_contrastive`.

    `beta_rcl` is β, the weight of the penalty, `lambda_rcl` the similarity it starts at.
    """

    name: ClassVar[str] = "rcl"
    tau: float = 0.05
    beta_rcl: float = 1.0
    lambda_rcl: float = 0.7
    mining: Mining = "hard"
    feature_relu: bool = False

    @property
    def taps(self) -> Tap:
        """The outputs of the stages before their activation, or after it with `feature_relu`."""
        return "relu" if self.feature_relu else "plain"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("tau", self.tau, 0.05)
        check_choice("mining", self.mining, ("hard", "all"))
        check_not_negative("beta_rcl", self.beta_rcl, 1.0)

    def __call__(self, view: StepView) -> TermValue:
        """Mean over stages and over the real samples of the batch."""
        if not view.stages:
            raise Misconfigured(
                "the relaxed contrastive loss compares the outputs of a model's stages; this model names no stages. "
                "Take a registered model, or list submodules in the attribute `stages` of your module."
            )
        values = [
            relaxed_contrastive(
                stage, view.labels, self.tau, self.beta_rcl, self.lambda_rcl, mining=self.mining, mask=view.mask
            )
            for stage in view.stages
        ]
        return TermValue(torch.stack(values).mean())
