"""Ditto: a personal model beside the global model, kept near it (Li et al., ICML 2021)."""

from dataclasses import replace
from typing import Literal, get_args

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.method import Method, Own, model
from fedblade.core.phase import Phase
from fedblade.core.registry import methods
from fedblade.core.terms import check_weight
from fedblade.losses import CrossEntropy, Proximal
from fedblade.methods.fedavg import fedavg

Variant = Literal["ditto", "fedbabu"]


# The anchor of `fedbabu` is a trained copy of the global model since revision 1.
@methods.register(
    revision=lambda knobs: int(knobs["variant"] == "fedbabu"),
    paper="arXiv:2012.04221",
    tune={"lambda_ditto": (0.001, 0.01, 0.1, 0.75)},
)
def ditto(lambda_ditto: float = 0.1, variant: Variant = "ditto") -> Method:
    """Train a personal model beside FedAvg's global model and pull it towards the received model.

    Objective: CE for the global model w; v_k ← v_k − η(∇CE(v_k) + λ(v_k − w^t)) for the personal model, which starts as
    w^0, trains as long and on the same batches, and is never sent. Server: averaging. Personal models: v_k.
    Deviation: `fedbabu` follows the code of FedBABU, which averages the personal models and overwrites them with the
    mean in each round. There a client first trains a copy of w^t on CE, u_k. It then trains w from w^t on
    CE + (λ/2)·‖w − u_k‖² and sends w; u_k is dropped. That code adds the pull after the momentum and also pulls
    statistics. Here the pull passes through the momentum, as in the formula above, and statistics are not pulled.
    """
    check_weight("lambda_ditto", lambda_ditto)
    if variant not in get_args(Variant):
        raise Misconfigured(f"unknown variant {variant!r}.{nearest(str(variant), get_args(Variant))}")
    if variant == "fedbabu":
        pull = Proximal(weight=lambda_ditto, of="copy")
        return replace(
            fedavg(),
            drafts=("copy",),
            phases=(Phase(track="copy", losses=(CrossEntropy(),)), Phase(losses=(CrossEntropy(), pull))),
        )
    personal_losses = (CrossEntropy(), Proximal(weight=lambda_ditto))
    return replace(
        fedavg(),
        phases=(Phase(), Phase(track="personal", losses=personal_losses)),
        client_state={"personal": model},
        own=Own(state="personal"),
    )
