"""Knowledge distillation: keep the softened predictions of the teacher."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView, Teacher
from fedblade.losses._checks import check_positive
from fedblade.losses._masking import mean_of_real, real_rows
from fedblade.losses._shapes import check_mask, check_matrix, check_shape


def knowledge_distillation(
    logits: Tensor, teacher_logits: Tensor, tau: float = 3.0, *, squared: bool = True, mask: Tensor | None = None
) -> Tensor:
    """Mean over samples of τ²·KL(softmax(ℓ_g/τ) ‖ softmax(ℓ/τ)), ℓ_g a constant (Hinton et al. 2015, Sec. 2).

    `logits` ℓ and `teacher_logits` ℓ_g are [batch, classes]. Without `squared` the factor τ² is left out, as in FedSOL;
    with it the size of the gradient does not depend on the temperature.

    Deviation: the paper minimises the cross-entropy with the teacher's predictions, which has the same gradient. The
    divergence is 0 if student and teacher agree.
    """
    check_positive("tau", tau, 3.0)
    check_matrix("logits", logits, "[batch, classes]")
    check_shape("teacher_logits", teacher_logits, tuple(logits.shape), "Take both from the same batch and head.")
    check_mask(mask, logits)
    student = (real_rows(logits, mask) / tau).log_softmax(-1)
    teacher = (real_rows(teacher_logits.detach(), mask) / tau).log_softmax(-1)
    divergence = mean_of_real((teacher.exp() * (teacher - student)).sum(-1), mask)
    return tau**2 * divergence if squared else divergence


@losses.register("knowledge_distillation", paper="arXiv:1503.02531, Sec. 2")
@dataclass(frozen=True, kw_only=True)
class KnowledgeDistillation(Term):
    """Divergence of the raw logits' softmax from the teacher's, see `knowledge_distillation`."""

    name: ClassVar[str] = "kd"
    tau: float = 3.0
    squared: bool = True
    teacher: Teacher = field(default=Teacher())

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("tau", self.tau, 3.0)

    @property
    def teachers(self) -> tuple[Teacher, ...]:
        """The teacher whose predictions are kept."""
        return (self.teacher,)

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        teacher_logits = view.teachers[self.teacher].raw_logits
        value = knowledge_distillation(view.raw_logits, teacher_logits, self.tau, squared=self.squared, mask=view.mask)
        return TermValue(value)
