"""FedRCL: relaxed contrastive learning at several depths (Seo et al., CVPR 2024)."""

from dataclasses import replace
from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.losses import CrossEntropy, RelaxedContrastive
from fedblade.methods.fedavg import fedavg


@methods.register(paper="arXiv:2401.04928", tune={"beta_rcl": (0.7, 1.0), "tau": (0.05, 0.1)})
def fedrcl(
    beta_rcl: float = 1.0,
    lambda_rcl: float = 0.7,
    tau: float = 0.05,
    mining: Literal["hard", "all"] = "hard",
    feature_relu: bool = False,
    clip: float | Literal["none"] = 10.0,
) -> Method:
    """Pull samples of a class together at every stage of the model, but not too closely.

    Objective: L_k = CE + mean over stages and samples of SCL_i + β·Pen_i: with s the cosine of two pooled stage
    outputs, SCL_i is supervised contrast at temperature τ, and Pen_i = log(1 + e^{(s_ip − 1)/τ}) where s_ip ≥ λ.
    Deviation: pairs are chosen as in the authors' code, the least similar sample p of i's class against the 2 most
    similar of other classes; `all` takes every pair. As in that code, gradients are clipped at the norm `clip`; a
    number in `optimizer.clip` has priority.
    """
    term = RelaxedContrastive(
        tau=tau, beta_rcl=beta_rcl, lambda_rcl=lambda_rcl, mining=mining, feature_relu=feature_relu
    )
    return replace(fedavg(), losses=(CrossEntropy(), term), clip=None if clip == "none" else clip)
