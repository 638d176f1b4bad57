"""`x+fd`: mix feature distillation from the received model into any method (FedDr+, Sec. 3.2 and Table 2)."""

from collections.abc import Callable
from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import regularisers
from fedblade.core.views import Teacher
from fedblade.losses import FeatureDistillation
from fedblade.regularisers._mix import BETA, mixed


@regularisers.register(paper="FedDr+, Sec. 3.2")
def fd(beta: float = BETA, teacher_norm: Literal["eval", "batch"] = "eval") -> Callable[[Method], Method]:
    """Stay near the received model's features: β·L + (1−β)·‖z − z^g‖²/d."""
    return mixed(beta, FeatureDistillation(teacher=Teacher(norm=teacher_norm)))
