"""`x+prox`: mix a proximal term into any method (FedDr+, Table 2; the term is FedProx's)."""

from collections.abc import Callable

from fedblade.core.method import Method
from fedblade.core.registry import regularisers
from fedblade.losses import Proximal
from fedblade.regularisers._mix import BETA, BETAS, mixed


@regularisers.register(paper="arXiv:1812.06127", tune={"beta": BETAS})
def prox(beta: float = BETA) -> Callable[[Method], Method]:
    """Keep weights near the received ones: β·L + (1−β)·½‖w − w^t‖²."""
    return mixed(beta, Proximal())
