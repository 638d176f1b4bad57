"""`x+lsingular`: equalise the spectrum of the feature covariance of any method (Shi et al., FedDecorr, Sec. 4.1)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import regularisers
from fedblade.losses import Singular


@regularisers.register(paper="arXiv:2210.00226")
def lsingular(lambda_decorr: float = 0.1, balance: float | Literal["none"] = "none") -> Callable[[Method], Method]:
    """Penalise unequal singular values of the feature covariance: + λ·(1/d)Σ_i(λ_i − λ̄)²."""
    term = Singular(weight=lambda_decorr, balance=None if balance == "none" else balance)
    return lambda method: replace(method, losses=(*method.losses, term))
