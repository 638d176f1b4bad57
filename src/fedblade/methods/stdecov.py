"""Structured-DeCov on FedAvg (Xiong et al., ICDM 2016; a baseline of FedDecorr)."""

from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.methods.fedavg import fedavg
from fedblade.regularisers.decorrelation import stdecov as add_stdecov


@methods.register(paper="doi:10.1109/ICDM.2016.0063", tune={"lambda_decorr": (0.01, 0.1, 1.0)})
def stdecov(
    lambda_decorr: float = 0.1,
    groups: int = 16,
    kappa: float = 0.0,
    normalize: bool = True,
    balance: float | Literal["none"] = "none",
) -> Method:
    """Penalise the covariances between groups of features of FedAvg.

    Objective: L_k = CE + λ·½(Σ_across Σ_ij² − κ·Σ_within Σ_ij²), divided by d² with `normalize`, with Σ the covariance
    of z in the batch, cut into `groups` groups of consecutive features. The same as `fedavg+stdecov`.
    """
    return add_stdecov(lambda_decorr, groups, kappa, normalize, balance)(fedavg())
