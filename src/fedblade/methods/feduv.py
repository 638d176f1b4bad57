"""FedUV: varied predictions and spread features (Son et al., CVPR 2024)."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.core.terms import Term, TermValue, check_weight
from fedblade.core.views import StepView
from fedblade.losses import CrossEntropy, PredictionVariance, Uniformity, prediction_variance
from fedblade.methods.fedavg import fedavg


@dataclass(frozen=True, kw_only=True)
class ScaledVariance(Term):
    """C/4 times the loss of `prediction_variance`; the factor is 2.5 with 10 classes."""

    name: ClassVar[str] = "variance"

    def __call__(self, view: StepView) -> TermValue:
        """The loss of the real samples of the batch."""
        return TermValue(view.logits.shape[1] / 4 * prediction_variance(view.logits, mask=view.mask))


@methods.register(revision=1, paper="arXiv:2402.18372", tune={"mu_u": (0.1, 0.5, 1.0)})
def feduv(lambda_v: float | Literal["auto"] = "auto", mu_u: float = 0.5) -> Method:
    """Keep the predictions of a batch varied and its features spread, as with independent data.

    Objective: L_k = CE + λ·mean_c max(0, 1/√C − std_c) + μ·mean_{i<j} exp(−‖z_i − z_j‖²/σ), std_c the deviation of
    class c's probability over the batch, σ the median of the squared distances that are not 0. As in the authors' code,
    the gradient passes through σ.
    With "auto" λ = C/4, which is the authors' 2.5 for 10 classes; the logged value includes this factor.
    """
    check_weight("lambda_v", 0.0 if lambda_v == "auto" else lambda_v)
    check_weight("mu_u", mu_u)
    variance = ScaledVariance() if lambda_v == "auto" else PredictionVariance(weight=lambda_v)
    return replace(fedavg(), losses=(CrossEntropy(), variance, Uniformity(weight=mu_u)))
