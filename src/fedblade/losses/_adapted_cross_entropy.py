"""Adapted cross-entropy: class vectors rescaled by how often the client holds their class."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView
from fedblade.losses._checks import check_choice
from fedblade.losses._cross_entropy import cross_entropy
from fedblade.losses._shapes import check_counts, check_matrix, check_shape

Phi = Literal["identity", "exp", "sqrt", "none"]
PHIS: tuple[Phi, ...] = ("identity", "exp", "sqrt", "none")
SoftmaxClasses = Literal["existing", "all"]
SOFTMAX_CLASSES: tuple[SoftmaxClasses, ...] = ("existing", "all")


def class_shares(counts: Tensor) -> Tensor:
    """Share of each class times the number of classes, Φ_c = C·n_c/n, in float64 (FedGELA, local adaptation).

    Exactly 1 for a class with n_c = n/C, because the numerator is computed first. All 0 without samples.
    """
    exact = counts.double()
    return counts.shape[-1] * exact / exact.sum(-1, keepdim=True).clamp(min=1)


def adaptation(counts: Tensor, kind: Phi, reference: Tensor | None = None) -> Tensor:
    """Scale Φ [classes] of the class vectors of a client with `counts [classes]` n, in float64 (FedGELA, Table 6).

    With x_c = n_c/n: `identity` is C·x_c, `exp` e^{x_c}/r_c and `sqrt` x_c^{1/2}/r_c, where `reference [classes]` r_c
    is the mean of the same Q(x_c) over all clients, weighted by their samples; `none` is 1. A class that no client
    holds has r_c = 0 under `sqrt`; its scale is 0.
    """
    check_choice("phi", kind, PHIS)
    if kind == "identity":
        return class_shares(counts)
    if kind == "none":
        return torch.ones_like(counts, dtype=torch.float64)
    if reference is None:
        raise Misconfigured(
            f"phi='{kind}' needs the clients' mean of Q(n_c/n) as reference [classes]; none given. "
            f"Compute it before the first round, or take phi='identity'."
        )
    check_shape("reference", reference, tuple(counts.shape), "Pass one mean for each class.")
    exact = counts.double()
    shares = exact / exact.sum(-1, keepdim=True).clamp(min=1)
    known = reference > 0
    scale = (shares.exp() if kind == "exp" else shares.sqrt()) / torch.where(known, reference, 1.0)
    return torch.where(known, scale, 0.0)


def adapted_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    phi: Tensor,
    counts: Tensor,
    *,
    classes: SoftmaxClasses = "existing",
    mask: Tensor | None = None,
) -> Tensor:
    """Cross-entropy of Φ_c·ℓ_c over the classes that the client holds (FedGELA, Eq. 5).

    `logits [batch, classes]` ℓ, `phi [classes]` Φ, a constant of the loss, and `counts [classes]`, the samples of each
    class on the client. A client with a single class has loss 0 and zero gradient; a sample of a class that the client
    lacks has an infinite loss. Half precision is computed and returned in float32, as large class vectors overflow it.

    Deviation: the authors' code keeps every class in the softmax, those with Φ_c = 0 with logit 0; that is
    `classes="all"`.
    """
    check_choice("classes", classes, SOFTMAX_CLASSES)
    check_matrix("logits", logits, "[batch, classes]")
    check_counts(counts, logits.shape[1])
    check_shape("phi", phi, (logits.shape[1],), "Make it with adaptation(counts, kind).")
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    scaled = wide * phi.detach().to(wide.dtype)
    if classes == "existing":
        scaled = torch.where(counts > 0, scaled, -torch.inf)
    return cross_entropy(scaled, labels, mask=mask)


@losses.register("adapted_cross_entropy", paper="arXiv:2405.18972, Eq. 5")
@dataclass(frozen=True, kw_only=True)
class AdaptedCrossEntropy(Term):
    """Cross-entropy of the head's logits, scaled by the client's Φ; see `adapted_cross_entropy`, `adaptation`.

    With `exp` and `sqrt` it reads the server state `phi`: `reference` [classes]. It counts the steps whose softmax has
    a single class, which have no gradient; with `classes="all"` there are no such steps.
    """

    name: ClassVar[str] = "supervised"
    supervised: ClassVar[bool] = True
    phi: Phi = "identity"
    classes: SoftmaxClasses = "existing"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("phi", self.phi, PHIS)
        check_choice("classes", self.classes, SOFTMAX_CLASSES)

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        reference = view.server["phi"]["reference"] if self.phi in ("exp", "sqrt") else None
        phi = adaptation(view.counts, self.phi, reference)
        value = adapted_cross_entropy(view.logits, view.labels, phi, view.counts, classes=self.classes, mask=view.mask)
        alone = ((view.counts > 0).sum() == 1) & (self.classes == "existing")
        return TermValue(value, {"count_single_class_steps": alone.to(value.dtype)})
