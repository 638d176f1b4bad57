"""Not-true distillation: keep the teacher's predictions for the classes that a sample does not belong to."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView, Teacher
from fedblade.losses._checks import check_positive
from fedblade.losses._knowledge_distillation import knowledge_distillation
from fedblade.losses._masking import real_rows
from fedblade.losses._shapes import check_labels, check_mask, check_matrix, check_shape


def not_true_distillation(
    logits: Tensor, teacher_logits: Tensor, labels: Tensor, tau: float = 3.0, *, mask: Tensor | None = None
) -> Tensor:
    """Mean over samples of τ²·KL(q̃_g ‖ q̃), q̃ = softmax(ℓ/τ) over the classes other than y (FedNTD, L_NTD).

    `logits` ℓ and `teacher_logits` ℓ_g, a constant, are [batch, classes]. The logit of a sample's class is not used.
    With two classes the value is 0.
    """
    check_matrix("logits", logits, "[batch, classes]")
    check_shape("teacher_logits", teacher_logits, tuple(logits.shape), "Take both from the same batch and head.")
    check_labels(labels, logits)
    check_mask(mask, logits)
    classes = logits.shape[1]
    steps = torch.arange(1, classes, device=labels.device)
    others = (real_rows(labels, mask)[:, None] + steps) % classes
    return knowledge_distillation(logits.gather(1, others), teacher_logits.gather(1, others), tau, mask=mask)


@losses.register("not_true_distillation", paper="arXiv:2106.03097")
@dataclass(frozen=True, kw_only=True)
class NotTrueDistillation(Term):
    """Divergence from the teacher over the classes other than the true one, see `not_true_distillation`."""

    name: ClassVar[str] = "ntd"
    tau: float = 3.0
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
        return TermValue(not_true_distillation(view.raw_logits, teacher_logits, view.labels, self.tau, mask=view.mask))
