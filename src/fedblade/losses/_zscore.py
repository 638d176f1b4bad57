"""The z-score of a batch with padding, its chain rule, and the number of features without variance."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedblade.losses._checks import check_ddof, check_positive

DEAD_VARIANCE = 1e-6
"""A feature whose variance in the batch is below this counts as dead."""


@dataclass(frozen=True)
class ZScore:
    """Column-wise z-score (x - mean)/sqrt(var + var_eps), var with n - ddof degrees of freedom."""

    var_eps: float
    ddof: int

    def __post_init__(self) -> None:
        check_positive("var_eps", self.var_eps, 1e-8)
        check_ddof(self.ddof)

    def count_dead(self, inverse_std: Tensor) -> Tensor:
        """How many of the 1/sqrt(var + var_eps) [1, dim] of a batch belong to dead features."""
        limit: float = (DEAD_VARIANCE + self.var_eps) ** -0.5
        return (inverse_std > limit).sum()


def num_real(z: Tensor, mask: Tensor | None) -> float | Tensor:
    """Real rows: a number without a mask, else [..., 1, 1] and at least 1."""
    if mask is None:
        return float(z.shape[-2])
    return (mask != 0).sum(-1).clamp(min=1).to(z.dtype)[..., None, None]


def _real(rows: Tensor, mask: Tensor | None) -> Tensor:
    return rows if mask is None else torch.where((mask != 0)[..., None], rows, 0.0)


def _degrees(n: float | Tensor, ddof: int) -> float | Tensor:
    return max(n - ddof, 1.0) if isinstance(n, float) else (n - ddof).clamp(min=1)


def _mean(rows: Tensor, n: float | Tensor) -> Tensor:
    """Mean over the batch of rows that are 0 for padding; a single operation if there is no padding."""
    return rows.mean(-2, keepdim=True) if isinstance(n, float) else rows.sum(-2, keepdim=True) / n


def standardise(z: Tensor, n: float | Tensor, mask: Tensor | None, score: ZScore) -> tuple[Tensor, Tensor]:
    """Z with zero rows for padding, and 1/sqrt(var + var_eps)."""
    z = _real(z, mask)
    centred = _real(z - _mean(z, n), mask)
    variance = centred.square().sum(-2, keepdim=True) / _degrees(n, score.ddof)
    inverse_std = (variance + score.var_eps).rsqrt()
    return centred * inverse_std, inverse_std


def standardise_backward(
    gradient: Tensor, Z: Tensor, scale: Tensor, n: float | Tensor, mask: Tensor | None, score: ZScore
) -> Tensor:
    """Chain rule through the z-score: scale·(g - mean g - Z·Σ(g∘Z)/(n - ddof)) for the gradient g with respect to Z."""
    spread = (gradient * Z).sum(-2, keepdim=True) / _degrees(n, score.ddof)
    return _real(torch.addcmul(gradient - _mean(gradient, n), Z, spread, value=-1) * scale, mask)
