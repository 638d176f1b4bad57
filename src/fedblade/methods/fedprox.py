"""FedProx: a proximal term keeps local weights near the global ones (Li et al., MLSys 2020)."""

from dataclasses import replace

from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.core.terms import check_weight
from fedblade.losses import CrossEntropy, Proximal
from fedblade.methods.fedavg import fedavg


@methods.register(paper="arXiv:1812.06127", tune={"mu": (0.0001, 0.001, 0.01, 0.1)})
def fedprox(mu: float = 0.01) -> Method:
    """Keep local weights near the global ones.

    Objective: L_k = CE + (μ/2)·‖w − w^t‖² over trained tensors, added as the gradient μ(w − w^t).
    With Dirichlet splits the code of FedDr+ makes E·E steps with this method, where its other methods make
    E·⌊500/50⌋; this error is not copied.
    """
    check_weight("mu", mu)
    return replace(fedavg(), losses=(CrossEntropy(), Proximal(weight=mu)))
