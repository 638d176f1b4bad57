"""Losses of the batch covariance, computed from the smaller of its two Gram matrices: DeCov and its relatives.

With X the centred features of N real samples, Σ = XᵀX/N. Since ‖XᵀX‖_F = ‖XXᵀ‖_F, the smaller of the two matrices gives
‖Σ‖_F².
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses
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


def decov(features: Tensor, *, normalize: bool = True, mask: Tensor | None = None) -> Tensor:
    """Half the squared off-diagonal of the batch covariance, ½(‖Σ‖_F² - ‖diag Σ‖²) (DeCov, the loss L_DeCov).

    Σ = XᵀX/N for the centred `features [batch, dim]` X. A batch of one sample gives 0. Half precision is computed and
    returned in float32.

    Deviations: `normalize` divides by d², so that weights can be compared with those of `feddecorr`; without it this is
    the paper's sum. The norm is computed from the smaller of XᵀX and XXᵀ.
    """
    return _off_diagonal(covariance(features, mask), normalize)


def _off_diagonal(given: Covariance, normalize: bool) -> Tensor:
    total = (given.squared_norm - given.diagonal.square().sum()) / 2
    return total / given.dim**2 if normalize else total


@losses.register("decov", paper="arXiv:1511.06068")
@dataclass(frozen=True, kw_only=True)
class DeCov(CovarianceTerm):
    """Covariances between the features of a batch, see `decov`."""

    name: ClassVar[str] = "decov"
    normalize: bool = True

    def loss(self, given: Covariance) -> Tensor:
        """The loss of a covariance."""
        return _off_diagonal(given, self.normalize)


def structured_decov(
    features: Tensor,
    *,
    groups: int = 16,
    kappa: float = 0.0,
    normalize: bool = True,
    mask: Tensor | None = None,
) -> Tensor:
    """Covariances across groups minus κ times those within, ½(Σ_across Σ_ij² - κ·Σ_{within, i≠j} Σ_ij²).

    Σ = XᵀX/N for the centred `features [batch, dim]` X. `groups` G consecutive features form a group of equal width; if
    d is no multiple of G, the first d mod G groups are one feature wider. `kappa` is κ. A batch of one sample gives 0.
    Half precision is computed and returned in float32. With G = d and κ = 0 this is `decov`.

    Deviations: the loss follows Xiong et al. (ICDM 2016) as used in FedDecorr, Table 7. These texts do not say how
    strongly covariances within a group are rewarded, hence κ and its default 0. `normalize` divides by d², as in
    `decov`. All norms are computed from the smaller Gram matrices: the sum across groups is ‖Σ‖_F² - Σ_g ‖Σ_gg‖_F².
    """
    _check_groups(groups)
    return _across_and_within(covariance(features, mask), groups, kappa, normalize)


def _check_groups(groups: int, dim: int | None = None) -> None:
    if groups < 1 or (dim is not None and groups > dim):
        expected = "1 or more" if dim is None else f"1 to {dim}, the number of features,"
        raise Misconfigured(f"groups={groups} given; {expected} expected. Take 16, or a divisor of the feature width.")


def _across_and_within(given: Covariance, groups: int, kappa: float, normalize: bool) -> Tensor:
    _check_groups(groups, given.dim)
    blocks = _squared_blocks(given.root, groups)
    total = (given.squared_norm - blocks) / 2
    if kappa != 0:
        total = total - kappa / 2 * (blocks - given.diagonal.square().sum())
    return total / given.dim**2 if normalize else total


def _squared_blocks(root: Tensor, groups: int) -> Tensor:
    """Σ_g ‖Σ_gg‖_F² over the diagonal blocks, the wider groups first."""
    width, num_wider = divmod(root.shape[-1], groups)
    edge = num_wider * (width + 1)
    total = _squared_equal_blocks(root[:, edge:], width)
    return total if num_wider == 0 else total + _squared_equal_blocks(root[:, :edge], width + 1)


def _squared_equal_blocks(root: Tensor, width: int) -> Tensor:
    rows, columns = root.shape
    return squared_norm(root.reshape(rows, columns // width, width).movedim(1, 0)).sum()


@losses.register("structured_decov", paper="doi:10.1109/ICDM.2016.0063")
@dataclass(frozen=True, kw_only=True)
class StructuredDeCov(CovarianceTerm):
    """Covariances between groups of features of a batch, see `structured_decov`."""

    name: ClassVar[str] = "stdecov"
    groups: int = 16
    kappa: float = 0.0
    normalize: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_groups(self.groups)

    def loss(self, given: Covariance) -> Tensor:
        """The loss of a covariance."""
        return _across_and_within(given, self.groups, self.kappa, self.normalize)


def singular(features: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Variance of the singular values λ of the batch covariance, (1/d)·Σ_i (λ_i - λ̄)² (FedDecorr, Sec. 4.1).

    Computed as (‖Σ‖_F² - (tr Σ)²/d)/d with Σ = XᵀX/N for the centred `features [batch, dim]` X: singular values of a
    covariance are its eigenvalues, and only their first two moments enter. A batch of one sample gives 0. Half
    precision is computed and returned in float32.

    Deviations: none in value. The paper calls the loss impractical, because singular values are expensive; this form
    does not compute them.
    """
    return _spread(covariance(features, mask))


def _spread(given: Covariance) -> Tensor:
    return (given.squared_norm - given.diagonal.sum().square() / given.dim) / given.dim


@losses.register("singular", paper="arXiv:2210.00226, Sec. 4.1")
@dataclass(frozen=True, kw_only=True)
class Singular(CovarianceTerm):
    """Variance of the singular values of the features' covariance, see `singular`."""

    name: ClassVar[str] = "lsingular"

    def loss(self, given: Covariance) -> Tensor:
        """The loss of a covariance."""
        return _spread(given)
