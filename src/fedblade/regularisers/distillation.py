"""`x+fd`, `x+kd`, `x+ld`, `x+ntd`: mix distillation from the received model into any method (FedDr+, Table 2)."""

from collections.abc import Callable
from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import regularisers
from fedblade.core.views import Teacher
from fedblade.losses import FeatureDistillation, KnowledgeDistillation, LogitDistillation, NotTrueDistillation
from fedblade.regularisers._mix import BETA, BETAS, mixed


@regularisers.register(paper="FedDr+, Sec. 3.2", tune={"beta": BETAS})
def fd(beta: float = BETA, teacher_norm: Literal["eval", "batch"] = "eval") -> Callable[[Method], Method]:
    """Stay near the received model's features: β·L + (1−β)·‖z − z^g‖²/d."""
    return mixed(beta, FeatureDistillation(teacher=Teacher(norm=teacher_norm)))


@regularisers.register(paper="arXiv:1503.02531", tune={"beta": BETAS})
def kd(
    beta: float = BETA, tau: float = 3.0, teacher_norm: Literal["eval", "batch"] = "eval"
) -> Callable[[Method], Method]:
    """Keep the received model's predictions: β·L + (1−β)·τ²·KL(softmax(ℓ^g/τ) ‖ softmax(ℓ/τ))."""
    return mixed(beta, KnowledgeDistillation(tau=tau, teacher=Teacher(norm=teacher_norm)))


@regularisers.register(paper="arXiv:2105.08919", tune={"beta": BETAS})
def ld(beta: float = BETA, teacher_norm: Literal["eval", "batch"] = "eval") -> Callable[[Method], Method]:
    """Stay near the received model's logits: β·L + (1−β)·‖ℓ − ℓ^g‖²/C."""
    return mixed(beta, LogitDistillation(teacher=Teacher(norm=teacher_norm)))


@regularisers.register(paper="arXiv:2106.03097", tune={"beta": BETAS})
def ntd(
    beta: float = BETA, tau: float = 3.0, teacher_norm: Literal["eval", "batch"] = "eval"
) -> Callable[[Method], Method]:
    """Keep the received model's predictions of classes other than y: β·L + (1−β)·τ²·KL(q̃^g ‖ q̃)."""
    return mixed(beta, NotTrueDistillation(tau=tau, teacher=Teacher(norm=teacher_norm)))
