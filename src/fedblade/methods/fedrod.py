"""FedRoD: a balanced generic head for all, and a personal head that adds to it (Chen and Chao, ICLR 2022)."""

from dataclasses import replace

from torch import Tensor

from fedblade.core.method import Method, Own
from fedblade.core.phase import Phase, Sgd
from fedblade.core.registry import methods
from fedblade.core.views import StepView
from fedblade.heads import DualLinearHead
from fedblade.losses import BalancedCrossEntropy, ResidualCrossEntropy
from fedblade.methods.fedavg import fedavg

_HEAD = DualLinearHead()


def _personal_logits(view: StepView) -> Tensor:
    return _HEAD.personal_logits(view.params, view.features)


@methods.register(paper="arXiv:2107.00778", tune={"gamma_bal": (0.5, 1.0, 2.0)})
def fedrod(gamma_bal: float = 1.0, count_floor: int = 1) -> Method:
    """Train a generic head on a balanced loss and a personal head that corrects it.

    Objective: L_k = mean_i CE(G(z_i) + γ·log n_k, y_i) over body and G, and mean_i CE(sg G(z_i) + P_k(sg z_i), y_i)
    over P_k, which starts as G and trains at the run's rate without momentum and decay, as in the authors' code; sg
    stops the gradient. Server: averaging of body and G. The global model predicts with G, a client with G + P_k.
    Deviation: P_k is linear; the paper's hypernetwork of the label histogram is not available.
    """
    return replace(
        fedavg(),
        head=_HEAD,
        losses=(BalancedCrossEntropy(gamma=gamma_bal, floor=count_floor), ResidualCrossEntropy()),
        phases=(Phase(group_sgd={"personal_head": Sgd(momentum=0.0, weight_decay=0.0)}),),
        personal=("personal_head",),
        own=Own(logits=_personal_logits),
    )
