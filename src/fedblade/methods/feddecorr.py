"""FedDecorr on FedAvg (Shi et al., ICLR 2023 and TPAMI)."""

from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.losses import Decorr
from fedblade.methods.fedavg import fedavg
from fedblade.regularisers.decorrelation import feddecorr as add_feddecorr


@methods.register(paper="arXiv:2210.00226", tune={"lambda_decorr": (0.01, 0.05, 0.1, 0.3)})
def feddecorr(lambda_decorr: float = 0.1, decorr: Decorr = Decorr(kind="feddecorr")) -> Method:
    """Decorrelate the features of FedAvg.

    Objective: L_k = CE + λ·L_FD(z), with L_FD = ‖K̂‖_F²/d² (`paper`, Eq. 9) or N times the mean squared off-diagonal
    correlation (`official`, the authors' code). The same as `fedavg+feddecorr`.
    """
    return add_feddecorr(lambda_decorr, decorr)(fedavg())
