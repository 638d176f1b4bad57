"""`x+lddecorr`: FedBlade's log-determinant decorrelation on any method (FedBlade Eq. 11)."""

from collections.abc import Callable
from dataclasses import replace

from fedblade.core.method import Method
from fedblade.core.registry import regularisers
from fedblade.losses import Decorr


@regularisers.register()
def lddecorr(lambda_decorr: float = 0.005, decorr: Decorr = Decorr(kind="logdet")) -> Callable[[Method], Method]:
    """Keep the spectrum of the feature correlation open: − λ·log det(K̂ + εI)."""
    return lambda method: replace(method, losses=(*method.losses, decorr.term(lambda_decorr)))
