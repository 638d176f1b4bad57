"""`x+ld`: mix logit distillation from the received model into any method (FedDr+, Table 2)."""

from collections.abc import Callable
from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import regularisers
from fedblade.core.views import Teacher
from fedblade.losses import LogitDistillation
from fedblade.regularisers._mix import BETA, mixed


@regularisers.register(paper="arXiv:2105.08919")
def ld(beta: float = BETA, teacher_norm: Literal["eval", "batch"] = "eval") -> Callable[[Method], Method]:
    """Stay near the received model's logits: β·L + (1−β)·‖ℓ − ℓ^g‖²/C."""
    return mixed(beta, LogitDistillation(teacher=Teacher(norm=teacher_norm)))
