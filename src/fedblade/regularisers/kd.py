"""`x+kd`: mix knowledge distillation from the received model into any method (FedDr+, Table 2)."""

from collections.abc import Callable
from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import regularisers
from fedblade.core.views import Teacher
from fedblade.losses import KnowledgeDistillation
from fedblade.regularisers._mix import BETA, mixed


@regularisers.register(paper="arXiv:1503.02531")
def kd(
    beta: float = BETA, tau: float = 3.0, teacher_norm: Literal["eval", "batch"] = "eval"
) -> Callable[[Method], Method]:
    """Keep the received model's predictions: β·L + (1−β)·τ²·KL(softmax(ℓ^g/τ) ‖ softmax(ℓ/τ))."""
    return mixed(beta, KnowledgeDistillation(tau=tau, teacher=Teacher(norm=teacher_norm)))
