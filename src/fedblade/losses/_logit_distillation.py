"""Logit distillation: stay near the logits of the teacher."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView, Teacher
from fedblade.losses._masking import mean_of_real, real_rows
from fedblade.losses._shapes import check_mask, check_matrix, check_shape


def logit_distillation(logits: Tensor, teacher_logits: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Mean over samples of ‖ℓ - ℓ_g‖²/C, ℓ_g a constant (Kim et al. 2021, L_MSE; LD in FedDr+, Sec. 3.4).

    `logits` ℓ and `teacher_logits` ℓ_g are [batch, classes], before any normalisation or temperature.

    Deviation: the distance is divided by the number of classes C, as FedDr+ divides features by their number.
    """
    check_matrix("logits", logits, "[batch, classes]")
    check_shape("teacher_logits", teacher_logits, tuple(logits.shape), "Take both from the same batch and head.")
    check_mask(mask, logits)
    gap = real_rows(logits, mask) - real_rows(teacher_logits.detach(), mask)
    return mean_of_real(gap.square().mean(-1), mask)


@losses.register("logit_distillation", paper="arXiv:2105.08919")
@dataclass(frozen=True, kw_only=True)
class LogitDistillation(Term):
    """Squared distance between the raw logits of the student and those of its teacher, see `logit_distillation`."""

    name: ClassVar[str] = "ld"
    teacher: Teacher = field(default=Teacher())

    @property
    def teachers(self) -> tuple[Teacher, ...]:
        """The teacher whose logits are kept."""
        return (self.teacher,)

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        return TermValue(logit_distillation(view.raw_logits, view.teachers[self.teacher].raw_logits, mask=view.mask))
