"""`x+ntd`: mix not-true distillation from the received model into any method (FedDr+, Table 2; FedNTD's term)."""

from collections.abc import Callable
from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import regularisers
from fedblade.core.views import Teacher
from fedblade.losses import NotTrueDistillation
from fedblade.regularisers._mix import BETA, mixed


@regularisers.register(paper="arXiv:2106.03097")
def ntd(
    beta: float = BETA, tau: float = 3.0, teacher_norm: Literal["eval", "batch"] = "eval"
) -> Callable[[Method], Method]:
    """Keep the received model's predictions of classes other than y: β·L + (1−β)·τ²·KL(q̃^g ‖ q̃)."""
    return mixed(beta, NotTrueDistillation(tau=tau, teacher=Teacher(norm=teacher_norm)))
