"""Feature distillation: stay near the features of the model received."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView, Teacher
from fedblade.losses._masking import mean_of_real, real_rows
from fedblade.losses._shapes import check_mask, check_matrix, check_shape


def feature_distillation(features: Tensor, anchor_features: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Mean over samples of ‖z - z_g‖²/d, z_g a constant (FedDr+, Sec. 3.2, L_FD).

    `features` and `anchor_features` are [batch, dim], neither normalised.
    """
    check_matrix("features", features)
    check_shape("anchor_features", anchor_features, tuple(features.shape), "Take both from the same batch and layer.")
    check_mask(mask, features)
    gap = real_rows(features, mask) - real_rows(anchor_features.detach(), mask)
    return mean_of_real(gap.square().mean(-1), mask)


@losses.register("feature_distillation", paper="FedDr+, Sec. 3.2")
@dataclass(frozen=True, kw_only=True)
class FeatureDistillation(Term):
    """Squared distance between the features of the student and those of its teacher, see `feature_distillation`."""

    name: ClassVar[str] = "fd"
    teacher: Teacher = field(default=Teacher())

    @property
    def teachers(self) -> tuple[Teacher, ...]:
        """The teacher whose features are kept."""
        return (self.teacher,)

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        return TermValue(feature_distillation(view.features, view.teachers[self.teacher].features, mask=view.mask))
