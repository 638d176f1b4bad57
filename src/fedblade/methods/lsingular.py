"""L_singular on FedAvg (Shi et al., FedDecorr, Sec. 4.1)."""

from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.methods.fedavg import fedavg
from fedblade.regularisers.decorrelation import lsingular as add_lsingular


@methods.register(paper="arXiv:2210.00226", tune={"lambda_decorr": (0.01, 0.1, 1.0)})
def lsingular(lambda_decorr: float = 0.1, balance: float | Literal["none"] = "none") -> Method:
    """Pull the singular values of FedAvg's feature covariance towards each other.

    Objective: L_k = CE + λ·(1/d)Σ_i(λ_i − λ̄)² with λ_i the singular values of the covariance of z in the batch. The
    same as `fedavg+lsingular`.
    """
    return add_lsingular(lambda_decorr, balance)(fedavg())
