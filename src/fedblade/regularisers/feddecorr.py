"""`x+feddecorr`: decorrelate the features of any method (Shi et al., FedDecorr, Eq. 9 and Algorithm 1)."""

from collections.abc import Callable

from fedblade.core.method import Method
from fedblade.core.registry import regularisers
from fedblade.core.terms import check_weight
from fedblade.losses import Decorr
from fedblade.regularisers._mix import added


@regularisers.register(paper="arXiv:2210.00226")
def feddecorr(lambda_decorr: float = 0.1, decorr: Decorr = Decorr(kind="feddecorr")) -> Callable[[Method], Method]:
    """Penalise correlation between feature dimensions: + λ·L_FD(z)."""
    check_weight("lambda_decorr", lambda_decorr)
    return added(decorr.term(lambda_decorr))
