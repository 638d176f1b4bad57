"""`x+feddecorr`: decorrelate the features of any method (Shi et al., FedDecorr, Eq. 9 and Algorithm 1)."""

from collections.abc import Callable
from dataclasses import replace

from fedblade.core.method import Method
from fedblade.core.registry import regularisers
from fedblade.losses import Decorr


@regularisers.register(paper="arXiv:2210.00226")
def feddecorr(lambda_decorr: float = 0.1, decorr: Decorr = Decorr(kind="feddecorr")) -> Callable[[Method], Method]:
    """Penalise correlation between feature dimensions: + λ·L_FD(z)."""
    return lambda method: replace(method, losses=(*method.losses, decorr.term(lambda_decorr)))
