"""Structured DeCov: penalise covariances between groups of features, but not within a group."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses
from fedblade.losses._covariance import Covariance, CovarianceTerm, covariance, squared_norm


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
