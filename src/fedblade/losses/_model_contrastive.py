"""Model contrast: be nearer to the global model's features than to those of the client's previous model."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView, Teacher
from fedblade.heads import normalise
from fedblade.losses._checks import check_positive
from fedblade.losses._masking import mean_of_real, real_rows
from fedblade.losses._shapes import check_mask, check_matrix, check_shape


def model_contrastive(
    features: Tensor,
    global_features: Tensor,
    previous_features: Tensor,
    tau: float = 0.5,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """Mean over samples of -log(e^{cos(r,r_g)/τ} / (e^{cos(r,r_g)/τ} + e^{cos(r,r_prev)/τ})) (MOON, ℓ_con).

    All features are [batch, dim]; those of the global model r_g and of the previous one r_prev are constants. Computed
    as softplus((cos(r,r_prev) - cos(r,r_g))/τ), which is the same number, with the difference taken before the product:
    equal models have no gradient at all. A zero vector has cosine 0.

    Deviation: none from the paper. The release of FedDecorr declares the temperature without applying it: tau=1.
    """
    check_positive("tau", tau, 0.5)
    check_matrix("features", features)
    for name, given in (("global_features", global_features), ("previous_features", previous_features)):
        check_shape(name, given, tuple(features.shape), "Take all three from the same batch and layer.")
    check_mask(mask, features)
    near, left = (normalise(real_rows(each.detach(), mask)) for each in (global_features, previous_features))
    excess = (normalise(real_rows(features, mask)) * (left - near)).sum(-1)
    # softplus, which torch's own replaces by its asymptote above 20
    return mean_of_real(-functional.logsigmoid(-excess / tau), mask)


@losses.register("model_contrastive", paper="arXiv:2103.16257")
@dataclass(frozen=True, kw_only=True)
class ModelContrastive(Term):
    """Contrast of the received model with the client's previous one, see `model_contrastive`.

    Reads the client state that `previous` names: a model, at first the initial one.
    """

    name: ClassVar[str] = "moon"
    tau: float = 0.5
    teacher: Teacher = field(default=Teacher())
    previous: Teacher = field(default=Teacher(of="previous"))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("tau", self.tau, 0.5)

    @property
    def teachers(self) -> tuple[Teacher, ...]:
        """The model to be near to and the one to leave."""
        return (self.teacher, self.previous)

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        near, left = view.teachers[self.teacher].features, view.teachers[self.previous].features
        return TermValue(model_contrastive(view.features, near, left, self.tau, mask=view.mask))
