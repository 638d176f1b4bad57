"""FedAvg: average locally trained models (McMahan et al., AISTATS 2017)."""

from fedblade import payloads
from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.heads import LinearHead
from fedblade.losses import CrossEntropy
from fedblade.server import average


@methods.register(paper="arXiv:1602.05629")
def fedavg() -> Method:
    """Average locally trained models.

    Objective: L_k = mean_i CE(W z_i + b, y_i).
    Server: w ← Σ_k a_k w_k, with a_k the share of samples (or the run's weighting).
    """
    return Method(head=LinearHead(), losses=(CrossEntropy(),), sums=payloads.MODEL, server=average)
