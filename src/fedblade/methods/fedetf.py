"""FedETF: a fixed simplex classifier, a projector and a balanced loss (Li et al., ICCV 2023)."""

from typing import Literal

from fedblade import payloads
from fedblade.core.method import Method, Own
from fedblade.core.registry import methods
from fedblade.heads import EtfProjectorHead, Scale
from fedblade.losses import BalancedCrossEntropy, CrossEntropy
from fedblade.personal import EtfFineTuning
from fedblade.server import average, scale_of


# Since revision 1, fine-tuning as in the authors' code stays in training mode.
@methods.register(
    revision=lambda knobs: int(knobs["ft"].variant == "release"),
    paper="arXiv:2303.10058",
    tune={"gamma_bal": (0.0, 0.5, 1.0)},
)
def fedetf(
    gamma_bal: float = 1.0,
    count_floor: int = 1,
    proj_dim: int | Literal["auto"] = "auto",
    projector: bool = True,
    projector_bias: bool = True,
    scale: Scale = Scale(),
    ft: EtfFineTuning = EtfFineTuning(),
) -> Method:
    """Share one fixed simplex classifier among all clients.

    Objective: L_k = mean_i CE(s·Vᵀu_i + γ·log n_k, y_i), u = g_ψ(z)/‖g_ψ(z)‖, V a fixed simplex ETF, s learnable
    (Eq. 5 and 6). Prediction: argmax_c v_cᵀu.
    Personal models (protocol `pers_etf`): plain CE over body and s, then in turns over V and s and over ψ and s; see
    `ft`. The code of FedDr+ has a projector without bias (`projector_bias = false`) and leaves missing classes out of
    the softmax (`count_floor = 0`), where the authors' code gives them the count 1.
    The authors' code measures the global model on 98 % of the test set, as the server keeps 2 %; here on all of it.
    """
    balanced = BalancedCrossEntropy(gamma=gamma_bal, floor=count_floor)
    return Method(
        head=EtfProjectorHead(proj_dim=proj_dim, projector=projector, bias=projector_bias, scale=scale),
        losses=(balanced,),
        sums=payloads.MODEL,
        server=average,
        own=Own(tuning={"pers_etf": ft.stages(CrossEntropy(), balanced, projector=projector)}),
        gauges={"scale": scale_of},
    )
