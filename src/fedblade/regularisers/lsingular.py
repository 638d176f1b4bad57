"""`x+lsingular`: equalise the spectrum of the feature covariance of any method (Shi et al., FedDecorr, Sec. 4.1)."""

from collections.abc import Callable
from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import regularisers
from fedblade.core.terms import check_weight
from fedblade.losses import Singular
from fedblade.regularisers._mix import added


@regularisers.register(paper="arXiv:2210.00226")
def lsingular(lambda_decorr: float = 0.1, balance: float | Literal["none"] = "none") -> Callable[[Method], Method]:
    """Penalise unequal singular values of the feature covariance: + λ·(1/d)Σ_i(λ_i − λ̄)²."""
    check_weight("lambda_decorr", lambda_decorr)
    term = Singular(weight=lambda_decorr, balance=None if balance == "none" else balance)
    return added(term)
