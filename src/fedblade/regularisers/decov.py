"""`x+decov`: decorrelate the features of any method by their covariance (Cogswell et al., DeCov, ICLR 2016)."""

from collections.abc import Callable
from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import regularisers
from fedblade.core.terms import check_weight
from fedblade.losses import DeCov
from fedblade.regularisers._mix import added


@regularisers.register(paper="arXiv:1511.06068")
def decov(
    lambda_decorr: float = 0.1, normalize: bool = True, balance: float | Literal["none"] = "none"
) -> Callable[[Method], Method]:
    """Penalise covariance between feature dimensions: + λ·½(‖Σ‖_F² − ‖diag Σ‖²)."""
    check_weight("lambda_decorr", lambda_decorr)
    term = DeCov(weight=lambda_decorr, balance=None if balance == "none" else balance, normalize=normalize)
    return added(term)
