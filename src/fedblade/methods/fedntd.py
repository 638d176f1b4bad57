"""FedNTD: not-true distillation from the received model (Lee et al., NeurIPS 2022)."""

from dataclasses import replace
from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.core.terms import check_weight
from fedblade.core.views import Teacher
from fedblade.losses import CrossEntropy, NotTrueDistillation
from fedblade.methods.fedavg import fedavg


@methods.register(paper="arXiv:2106.03097", tune={"beta_ntd": (0.3, 1.0, 3.0)})
def fedntd(beta_ntd: float = 1.0, tau: float = 3.0, teacher_norm: Literal["eval", "batch"] = "eval") -> Method:
    """Keep the received model's predictions for the classes that a sample does not belong to.

    Objective: L_k = CE + β·τ²·KL(q̃^g ‖ q̃), q̃ = softmax(ℓ/τ) over the classes other than y. q̃^g is the same for the
    received model, without gradient. With two classes the term is 0.
    """
    check_weight("beta_ntd", beta_ntd)
    term = NotTrueDistillation(weight=beta_ntd, tau=tau, teacher=Teacher(norm=teacher_norm))
    return replace(fedavg(), losses=(CrossEntropy(), term))
