"""Distillation: stay near the features, the logits or the predictions of a teacher, such as the model received."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView, Teacher
from fedblade.losses._checks import check_positive
from fedblade.losses._masking import mean_of_real, real_rows
from fedblade.losses._shapes import check_labels, check_mask, check_matrix, check_shape


def feature_distillation(features: Tensor, anchor_features: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Mean over samples of ‖z - z_g‖²/d, z_g a constant (FedDr+, Sec. 3.2, L_FD).

    `features` and `anchor_features` are [batch, dim], neither normalised.
    """
    check_matrix("features", features)
    check_shape("anchor_features", anchor_features, tuple(features.shape), "Take both from the same batch and layer.")
    check_mask(mask, features)
    gap = real_rows(features, mask) - real_rows(anchor_features.detach(), mask)
    return mean_of_real(gap.square().mean(-1), mask)


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


@dataclass(frozen=True, kw_only=True)
class _Distillation(Term):
    """A term that compares with a teacher."""

    teacher: Teacher = field(default=Teacher())

    @property
    def teachers(self) -> tuple[Teacher, ...]:
        """The teacher that the model stays near to."""
        return (self.teacher,)


@losses.register("feature_distillation", paper="FedDr+, Sec. 3.2")
@dataclass(frozen=True, kw_only=True)
class FeatureDistillation(_Distillation):
    """Squared distance between the features of the student and those of its teacher, see `feature_distillation`."""

    name: ClassVar[str] = "fd"

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        return TermValue(feature_distillation(view.features, view.teachers[self.teacher].features, mask=view.mask))


@losses.register("logit_distillation", paper="arXiv:2105.08919")
@dataclass(frozen=True, kw_only=True)
class LogitDistillation(_Distillation):
    """Squared distance between the raw logits of the student and those of its teacher, see `logit_distillation`."""

    name: ClassVar[str] = "ld"

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        return TermValue(logit_distillation(view.raw_logits, view.teachers[self.teacher].raw_logits, mask=view.mask))


@losses.register("knowledge_distillation", paper="arXiv:1503.02531, Sec. 2")
@dataclass(frozen=True, kw_only=True)
class KnowledgeDistillation(_Distillation):
    """Divergence of the raw logits' softmax from the teacher's, see `knowledge_distillation`."""

    name: ClassVar[str] = "kd"
    tau: float = 3.0
    squared: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("tau", self.tau, 3.0)

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        teacher_logits = view.teachers[self.teacher].raw_logits
        value = knowledge_distillation(view.raw_logits, teacher_logits, self.tau, squared=self.squared, mask=view.mask)
        return TermValue(value)


@losses.register("not_true_distillation", paper="arXiv:2106.03097")
@dataclass(frozen=True, kw_only=True)
class NotTrueDistillation(_Distillation):
    """Divergence from the teacher over the classes other than the true one, see `not_true_distillation`."""

    name: ClassVar[str] = "ntd"
    tau: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("tau", self.tau, 3.0)

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        teacher_logits = view.teachers[self.teacher].raw_logits
        return TermValue(not_true_distillation(view.raw_logits, teacher_logits, view.labels, self.tau, mask=view.mask))
