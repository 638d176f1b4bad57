"""The covariance of a batch with padding, computed from the smaller of its two Gram matrices.

With X the centred features of N real samples, Σ = XᵀX/N. Since ‖XᵀX‖_F = ‖XXᵀ‖_F, the smaller of the two matrices gives
‖Σ‖_F².
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fedblade.core.terms import FeatureTerm, TermValue
from fedblade.losses._masking import real_rows
from fedblade.losses._shapes import check_mask, check_matrix
from fedblade.losses._standardised import exact_products, is_dual


@dataclass(frozen=True)
class Covariance:
    """Σ = RᵀR by its root R [batch, dim], the centred features over sqrt(N); 0 for padding and for a single sample."""

    root: Tensor
    squared_norm: Tensor

    @property
    def diagonal(self) -> Tensor:
        """The variances [dim]."""
        return self.root.square().sum(-2)

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.root.shape[-1]


def covariance(features: Tensor, mask: Tensor | None) -> Covariance:
    """The covariance of the real samples of `features [batch, dim]`; half precision is computed in float32."""
    check_matrix("features", features)
    check_mask(mask, features)
    rows = real_rows(features.to(torch.promote_types(features.dtype, torch.float32)), mask)
    n = rows.new_full((), rows.shape[0]) if mask is None else (mask != 0).sum().to(rows.dtype)
    n = n.clamp(min=1)
    root = real_rows(rows - rows.sum(0) / n, mask) * n.rsqrt()
    return Covariance(root, squared_norm(root))


def squared_norm(root: Tensor) -> Tensor:
    """‖RᵀR‖_F² for R [..., batch, dim], from the smaller Gram matrix."""
    with exact_products(root.device):
        gram = root @ root.mT if is_dual("auto", root) else root.mT @ root
    return gram.square().sum((-2, -1))


@dataclass(frozen=True, kw_only=True)
class CovarianceTerm(FeatureTerm):
    """A loss of the batch covariance Σ.

    The loss is not divided by the scale of the features, so its gradient grows with the third power of the scale. The
    term logs ‖Σ‖_F as `{name}_norm` to make this visible.
    """

    def __call__(self, features: Tensor, mask: Tensor | None) -> TermValue:
        """The loss of one batch of features."""
        batch = covariance(features, mask)
        return TermValue(self.loss(batch), {f"{self.name}_norm": batch.squared_norm.detach().sqrt()})

    @abstractmethod
    def loss(self, given: Covariance) -> Tensor:
        """The loss of a covariance."""
