"""FedGE: FedGELA without its local adaptation (Fan et al., NeurIPS 2023, Table 4)."""

from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.methods.fedgela import SoftmaxClasses, adapted, etf_head


@methods.register(paper="arXiv:2405.18972", tune={"E_W": (1e4, 1e5, 1e6, 1e7)})
def fedge(
    E_W: float = 1e4,
    normalize: bool = True,
    softmax_classes: SoftmaxClasses = "existing",
    clip: float | Literal["none"] = 20.0,
) -> Method:
    """Share one fixed simplex classifier without adapting it to the clients.

    Objective: FedGELA's with Φ = 1, L_k = −mean_i log softmax_{c ∈ C_k}(sqrt(E_W)·m_cᵀh_i)[y_i], C_k the client's
    classes. Prediction: argmax_c m_cᵀh. Personal models: argmax_{c ∈ C_k} m_cᵀh, the model after local training.
    Gradients are clipped at the norm `clip` and the layer to 512 features is `model.neck`, as with FedGELA.
    """
    return adapted(etf_head(E_W, normalize), "none", softmax_classes, clip)
