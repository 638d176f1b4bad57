"""MOON: contrast of the received model with the client's previous model (Li et al., CVPR 2021)."""

from dataclasses import replace
from typing import Literal

from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method
from fedblade.core.neck import Neck
from fedblade.core.registry import methods
from fedblade.core.terms import check_weight
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg
from fedblade.regularisers.moon import contrast, remembering


@methods.register(revision=1, paper="arXiv:2103.16257", tune={"mu": (0.1, 1.0, 5.0, 10.0)})
def moon(
    mu: float = 1.0,
    tau: float = 0.5,
    mlp: bool = False,
    mlp_hidden: float = 0.5,
    mlp_width: int = 256,
    teacher_norm: Literal["eval", "batch"] = "eval",
) -> Method:
    """Keep features nearer to the global model's than to those of the client's previous model.

    Objective: L_k = CE + μ·mean_i −log(e^{cos(r,r^g)/τ} / (e^{cos(r,r^g)/τ} + e^{cos(r,r^prev)/τ})), r = z, or with
    `mlp` the output of linear(d, h), ReLU, linear(h, `mlp_width`), which then feeds the classifier and every other
    term too; h = `mlp_hidden`·d.
    Client: keeps its model after local training as the previous model; a client that takes part for the first time has
    w^0, as in the code of FedNTD. In the first round both models are w^0 and the term has no gradient.
    Deviation: h = d/2 as in the code of FedDecorr; the paper has h = d. That code applies no temperature: tau=1.
    With Dirichlet splits the code of FedDr+ makes E·E steps with this method, where its other methods make
    E·⌊500/50⌋; this error is not copied.
    """
    check_weight("mu", mu)
    if not (mlp_hidden > 0 and mlp_width > 0):
        raise Misconfigured(
            f"mlp_hidden={mlp_hidden!r}, mlp_width={mlp_width!r}: expected numbers above 0, such as 0.5 and 256."
        )
    return remembering(
        replace(
            fedavg(),
            losses=(CrossEntropy(), replace(contrast(tau, teacher_norm), weight=mu)),
            neck=Neck(width=mlp_width, hidden=mlp_hidden) if mlp else None,
        )
    )
