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

    All features are [batch, dim]; those of the global model r_g and of the previous model r_prev are constants. The
    loss is computed as softplus((cos(r,r_prev) - cos(r,r_g))/τ), which is the same number. The difference of the two
    models is taken before the product with r, so that equal models have no gradient. A zero vector has cosine 0.

    Deviation: none from the paper. The code of FedDecorr declares the temperature without applying it: tau=1.
    """
    check_positive("tau", tau, 0.5)
    check_matrix("features", features)
    for name, given in (("global_features", global_features), ("previous_features", previous_features)):
        check_shape(name, given, tuple(features.shape), "Take all three from the same batch and layer.")
    check_mask(mask, features)
    near, far = (normalise(real_rows(vectors.detach(), mask)) for vectors in (global_features, previous_features))
    excess = (normalise(real_rows(features, mask)) * (far - near)).sum(-1)
    # This is softplus; torch's function replaces softplus by its asymptote above 20.
    return mean_of_real(-functional.logsigmoid(-excess / tau), mask)


@losses.register("model_contrastive", paper="arXiv:2103.16257")
@dataclass(frozen=True, kw_only=True)
class ModelContrastive(Term):
    """Contrast of the received model with the client's previous model, see `model_contrastive`.

    Reads the client state that `previous` names: a model, at first the initial model.
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
        """The received model, then the previous model."""
        return (self.teacher, self.previous)

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        near, far = view.teachers[self.teacher].features, view.teachers[self.previous].features
        return TermValue(model_contrastive(view.features, near, far, self.tau, mask=view.mask))
