"""LA only: FedGELA's local adaptation of a classifier that is trained (Fan et al., NeurIPS 2023, Table 4)."""

from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.heads import LinearHead
from fedblade.methods.fedgela import Phi, SoftmaxClasses, adapted


@methods.register(paper="arXiv:2405.18972", tune={"phi": ("identity", "exp", "sqrt")})
def fedla(
    phi: Phi = "identity",
    normalize: bool = True,
    softmax_classes: SoftmaxClasses = "existing",
    clip: float | Literal["none"] = 20.0,
) -> Method:
    """Train and average a classifier that each client rescales by its class shares.

    Objective: FedGELA's with a learnable W without bias in place of sqrt(E_W)·M,
    L_k = −mean_i log softmax_{c ∈ C_k}(Φ_{k,c}·w_cᵀh_i)[y_i], h = z/‖z‖ (h = z without `normalize`).
    Prediction: argmax_c w_cᵀh. Personal models: argmax_{c ∈ C_k} Φ_{k,c} w_cᵀh, the model after local training.
    Gradients are clipped at the norm `clip` and the layer to 512 features is `model.neck`, as with FedGELA.
    """
    return adapted(LinearHead(bias=False, normalize=normalize), phi, softmax_classes, clip)
