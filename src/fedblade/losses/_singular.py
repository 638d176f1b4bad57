"""L_singular: pull the singular values of the batch covariance towards each other."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedblade.core.registry import losses
from fedblade.losses._covariance import Covariance, CovarianceTerm, covariance


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
