"""DeCov on FedAvg (Cogswell et al., ICLR 2016; a baseline of FedDecorr)."""

from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.methods.fedavg import fedavg
from fedblade.regularisers.decorrelation import decov as add_decov


@methods.register(paper="arXiv:1511.06068", tune={"lambda_decorr": (0.01, 0.1, 1.0)})
def decov(lambda_decorr: float = 0.1, normalize: bool = True, balance: float | Literal["none"] = "none") -> Method:
    """Penalise the covariances between the features of FedAvg.

    Objective: L_k = CE + λ·½(‖Σ‖_F² − ‖diag Σ‖²), divided by d² with `normalize`, with Σ the covariance of z in the
    batch. The same as `fedavg+decov`.
    """
    return add_decov(lambda_decorr, normalize, balance)(fedavg())
