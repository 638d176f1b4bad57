"""DeCov: penalise the covariances between features."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedblade.core.registry import losses
from fedblade.losses._covariance import Covariance, CovarianceTerm, covariance


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
