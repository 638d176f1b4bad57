"""`x+stdecov`: decorrelate groups of features of any method (Xiong et al., Structured-DeCov, ICDM 2016)."""

from collections.abc import Callable
from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import regularisers
from fedblade.core.terms import check_weight
from fedblade.losses import StructuredDeCov
from fedblade.regularisers._mix import added


@regularisers.register(paper="doi:10.1109/ICDM.2016.0063")
def stdecov(
    lambda_decorr: float = 0.1,
    groups: int = 16,
    kappa: float = 0.0,
    normalize: bool = True,
    balance: float | Literal["none"] = "none",
) -> Callable[[Method], Method]:
    """Penalise covariance between groups of feature dimensions: + λ·½(Σ_across Σ_ij² − κ·Σ_within Σ_ij²)."""
    check_weight("lambda_decorr", lambda_decorr)
    term = StructuredDeCov(
        weight=lambda_decorr,
        balance=None if balance == "none" else balance,
        groups=groups,
        kappa=kappa,
        normalize=normalize,
    )
    return added(term)
