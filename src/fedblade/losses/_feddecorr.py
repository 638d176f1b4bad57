"""FedDecorr: push the batch correlation of the features towards the identity in Frobenius norm."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import FeatureTerm, TermValue
from fedblade.losses._checks import check_choice
from fedblade.losses._standardised import FORMS, Form, Part, evaluate, is_dual
from fedblade.losses._zscore import ZScore

Scale = Literal["paper", "official"]
OwnOrFixed = Literal["own", "f64", "f32"]


def feddecorr(
    z: Tensor,
    scale: Scale = "paper",
    *,
    ddof: int = 1,
    var_eps: float = 1e-8,
    form: Form = "auto",
    precision: OwnOrFixed = "own",
    mask: Tensor | None = None,
) -> Tensor:
    """Mean squared correlation between the features of a batch `z [batch, dim]`.

    With Z the z-score of z: `paper` is ‖ZᵀZ/N‖_F²/d² (FedDecorr, Eq. 9, with Algorithm 1's unbiased deviation);
    `official` is Σ_{i≠j}(ZᵀZ)_ij²/(N·d·(d - 1)), as in the authors' code: without the diagonal, and about N times
    larger ((N - 1)²/N between the off-diagonal means). A batch of one sample gives 0.

    Deviations: none in value. Norms are computed from the smaller Gram matrix, ‖ZᵀZ‖_F = ‖ZZᵀ‖_F, and gradients in
    closed form; second derivatives are refused. `precision="own"` is the dtype of `z`, which is accurate enough here.
    """
    result = evaluate(z, mask, ZScore(var_eps, ddof), _Frobenius(scale, form, precision))
    return (z * 0).sum() if result is None else result.value.to(z.dtype)


@losses.register("feddecorr", paper="arXiv:2210.00226, Eq. 9")
@dataclass(frozen=True, kw_only=True)
class FedDecorr(FeatureTerm):
    """Mean squared correlation between the features of a batch, see `feddecorr`.

    It counts features with nearly no variance.
    """

    name: ClassVar[str] = "decorr"
    scale: Scale = "official"
    ddof: int = 1
    var_eps: float = 1e-8
    form: Form = "auto"
    precision: OwnOrFixed = "own"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._parts()

    def __call__(self, features: Tensor, mask: Tensor | None) -> TermValue:
        """The loss of one batch of features."""
        result = evaluate(features, mask, *self._parts())
        if result is None:
            return TermValue((features * 0).sum(), {"count_dead_features": features.new_zeros(())})
        return TermValue(
            result.value.to(features.dtype), {"count_dead_features": result.count_dead(mask).to(features.dtype)}
        )

    def _parts(self) -> "tuple[ZScore, _Frobenius]":
        return ZScore(self.var_eps, self.ddof), _Frobenius(self.scale, self.form, self.precision)


@dataclass(frozen=True)
class _Frobenius:
    """(‖ZᵀZ‖_F² - Σ_j q_j²)/c with q the diagonal, c the divisor of the scale; `paper` does not subtract q."""

    scale: Scale
    form: Form
    precision: OwnOrFixed

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, ("paper", "official"))
        check_choice("form", self.form, FORMS)
        check_choice("precision", self.precision, ("own", "f64", "f32"))

    def dtype(self, own: torch.dtype) -> torch.dtype:
        return {"own": own, "f64": torch.float64, "f32": torch.float32}[self.precision]

    def value(self, Z: Tensor, n: float | Tensor) -> Part:
        gram = Z @ Z.mT if is_dual(self.form, Z) else Z.mT @ Z
        total = gram.square().sum((-2, -1), keepdim=True)
        if self.scale == "official":
            total = total - Z.square().sum(-2, keepdim=True).square().sum(-1, keepdim=True)
        value = (total / self._divisor(Z, n))[..., 0, 0]
        return Part(value, torch.zeros_like(value, dtype=torch.bool), gram)

    def gradient(self, Z: Tensor, n: float | Tensor, part: Part) -> Tensor:
        factor = 4 / self._divisor(Z, n)
        gram = part.work * factor
        gradient = gram @ Z if is_dual(self.form, Z) else Z @ gram
        if self.scale == "paper":
            return gradient
        return gradient - Z * (Z.square().sum(-2, keepdim=True) * factor)

    def _divisor(self, Z: Tensor, n: float | Tensor) -> float | Tensor:
        dim = Z.shape[-1]
        return n * n * float(dim * dim) if self.scale == "paper" else n * float(max(dim * (dim - 1), 1))
