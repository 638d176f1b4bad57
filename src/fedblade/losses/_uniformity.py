"""Uniformity and variance: keep the predictions of a batch diverse and its features spread."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import FeatureTerm, Term, TermValue
from fedblade.core.views import StepView
from fedblade.losses._masking import real_rows
from fedblade.losses._shapes import check_mask, check_matrix


def prediction_variance(logits: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Mean over classes of max(0, 1/√C - std_c), std_c the deviation of class c's probability (FedUV).

    It is the deviation of softmax(ℓ) over the batch with N - 1 degrees of freedom, for `logits [batch, classes]` ℓ.
    1/√C is the deviation of a batch with one certain prediction of each class. A batch of one sample gives 0.

    Deviation: a class with constant probability has no gradient; the formula does not define it.
    """
    check_matrix("logits", logits, "[batch, classes]")
    check_mask(mask, logits)
    probabilities = real_rows(logits, mask).softmax(-1)
    real = _real(logits, mask)
    num_real = real.sum()
    mean = real_rows(probabilities, mask).sum(0) / num_real.clamp(min=1)
    squares = real_rows((probabilities - mean).square(), mask).sum(0)
    variance = squares / (num_real - 1).clamp(min=1)
    varies = variance > 0
    deviation = torch.where(varies, torch.where(varies, variance, 1.0).sqrt(), 0.0)
    value = (logits.shape[1] ** -0.5 - deviation).relu().mean()
    return torch.where(num_real > 1, value, torch.zeros_like(value))


def uniformity(features: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Mean over pairs i < j of exp(-‖z_i - z_j‖²/σ) for `features [batch, dim]` z (FedUV).

    σ is the median of the squared distances that are not 0, the lower one of two. The gradient also passes through σ,
    as in the authors' code: it reaches the pair whose distance is the median, in equal parts if there are several. With
    one sample, or with equal samples only, the value is 0.

    Deviations: none. Distances are computed from the Gram matrix of the centred features in float64, so that rounding
    hides only the distances of equal samples.
    """
    check_matrix("features", features)
    check_mask(mask, features)
    real = _real(features, mask)
    distances = _squared_distances(features, mask)
    pairs = (real[:, None] & real).triu(1)
    apart = pairs & (distances > 0)
    scale = _lower_median(distances, apart)
    kernel = torch.where(pairs, (-distances / scale).exp(), 0.0)
    value = kernel.sum() / pairs.sum().clamp(min=1)
    return torch.where(apart.any(), value, torch.zeros_like(value)).to(features.dtype)


def _real(rows: Tensor, mask: Tensor | None) -> Tensor:
    return rows.new_ones(rows.shape[0], dtype=torch.bool) if mask is None else mask != 0


def _squared_distances(features: Tensor, mask: Tensor | None) -> Tensor:
    """G_ii + G_jj - 2·G_ij; exactly 0 for a distance that is only rounding."""
    rows = real_rows(features, mask).double()
    mean = rows.detach().sum(0) / _real(features, mask).sum().clamp(min=1)
    # Subtracting a constant changes no distance, but without it a common offset would cost digits.
    centred = real_rows(rows - mean, mask)
    gram = centred @ centred.mT
    lengths = gram.diagonal()
    sums = lengths[:, None] + lengths
    distances = sums - 2 * gram
    rounding = torch.finfo(rows.dtype).eps * features.shape[1] * sums
    return torch.where(distances > rounding, distances, torch.zeros_like(distances))


def _lower_median(values: Tensor, chosen: Tensor) -> Tensor:
    """Median of the chosen values, the lower one of two; 1 if none is chosen. Equal values share its gradient."""
    ordered = torch.where(chosen, values.detach(), torch.inf).flatten().sort().values
    middle = (chosen.sum() - 1).clamp(min=0) // 2
    median = torch.where(chosen.any(), ordered.gather(0, middle[None])[0], 1.0)
    equal = chosen & (values.detach() == median)
    # The value is 0; only its gradient matters.
    change = torch.where(equal, values - values.detach(), 0.0)
    return median + change.sum() / equal.sum().clamp(min=1)


@losses.register("prediction_variance", paper="arXiv:2402.18372")
@dataclass(frozen=True, kw_only=True)
class PredictionVariance(Term):
    """Missing spread of the head's predictions over the batch, see `prediction_variance`."""

    name: ClassVar[str] = "variance"

    def __call__(self, view: StepView) -> TermValue:
        """The loss of the real samples of the batch."""
        return TermValue(prediction_variance(view.logits, mask=view.mask))


@losses.register("uniformity", paper="arXiv:2402.18372")
@dataclass(frozen=True, kw_only=True)
class Uniformity(FeatureTerm):
    """How close the features of a batch are to each other, see `uniformity`."""

    name: ClassVar[str] = "uniformity"

    def __call__(self, features: Tensor, mask: Tensor | None) -> TermValue:
        """The loss of one batch of features."""
        return TermValue(uniformity(features, mask=mask))
