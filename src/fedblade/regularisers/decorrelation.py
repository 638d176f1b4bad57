"""`x+decov`, `x+feddecorr`, `x+lddecorr`, `x+lsingular`, `x+stdecov`: decorrelate the features of any method."""

from collections.abc import Callable
from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import regularisers
from fedblade.core.terms import check_weight
from fedblade.losses import Decorr, DeCov, Singular, StructuredDeCov
from fedblade.regularisers._mix import added


@regularisers.register(paper="arXiv:1511.06068", tune={"lambda_decorr": (0.01, 0.1, 1.0)})
def decov(
    lambda_decorr: float = 0.1, normalize: bool = True, balance: float | Literal["none"] = "none"
) -> Callable[[Method], Method]:
    """Penalise covariance between feature dimensions: + λ·½(‖Σ‖_F² − ‖diag Σ‖²)."""
    check_weight("lambda_decorr", lambda_decorr)
    return added(DeCov(weight=lambda_decorr, balance=_share(balance), normalize=normalize))


@regularisers.register(paper="arXiv:2210.00226", tune={"lambda_decorr": (0.01, 0.05, 0.1, 0.3)})
def feddecorr(lambda_decorr: float = 0.1, decorr: Decorr = Decorr(kind="feddecorr")) -> Callable[[Method], Method]:
    """Penalise correlation between feature dimensions: + λ·L_FD(z)."""
    check_weight("lambda_decorr", lambda_decorr)
    return added(decorr.term(lambda_decorr))


@regularisers.register(tune={"lambda_decorr": (0.001, 0.005, 0.01, 0.05)})
def lddecorr(lambda_decorr: float = 0.005, decorr: Decorr = Decorr(kind="logdet")) -> Callable[[Method], Method]:
    """Keep the spectrum of the feature correlation open: − λ·log det(K̂ + εI)."""
    check_weight("lambda_decorr", lambda_decorr)
    return added(decorr.term(lambda_decorr))


@regularisers.register(paper="arXiv:2210.00226", tune={"lambda_decorr": (0.01, 0.1, 1.0)})
def lsingular(lambda_decorr: float = 0.1, balance: float | Literal["none"] = "none") -> Callable[[Method], Method]:
    """Penalise unequal singular values of the feature covariance: + λ·(1/d)Σ_i(λ_i − λ̄)²."""
    check_weight("lambda_decorr", lambda_decorr)
    return added(Singular(weight=lambda_decorr, balance=_share(balance)))


@regularisers.register(paper="doi:10.1109/ICDM.2016.0063", tune={"lambda_decorr": (0.01, 0.1, 1.0)})
def stdecov(
    lambda_decorr: float = 0.1,
    groups: int = 16,
    kappa: float = 0.0,
    normalize: bool = True,
    balance: float | Literal["none"] = "none",
) -> Callable[[Method], Method]:
    """Penalise covariance between groups of feature dimensions: + λ·½(Σ_across Σ_ij² − κ·Σ_within Σ_ij²)."""
    check_weight("lambda_decorr", lambda_decorr)
    balanced = _share(balance)
    term = StructuredDeCov(weight=lambda_decorr, balance=balanced, groups=groups, kappa=kappa, normalize=normalize)
    return added(term)


def _share(balance: float | Literal["none"]) -> float | None:
    """The knob `balance` as terms take it."""
    return None if balance == "none" else balance
