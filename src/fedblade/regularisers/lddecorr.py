"""`x+lddecorr`: FedBlade's log-determinant decorrelation on any method (FedBlade Eq. 11)."""

from collections.abc import Callable

from fedblade.core.method import Method
from fedblade.core.registry import regularisers
from fedblade.core.terms import check_weight
from fedblade.losses import Decorr
from fedblade.regularisers._mix import added


@regularisers.register()
def lddecorr(lambda_decorr: float = 0.005, decorr: Decorr = Decorr(kind="logdet")) -> Callable[[Method], Method]:
    """Keep the spectrum of the feature correlation open: − λ·log det(K̂ + εI)."""
    check_weight("lambda_decorr", lambda_decorr)
    return added(decorr.term(lambda_decorr))
