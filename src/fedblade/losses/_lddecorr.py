"""LDDecorr: keep the spectrum of the batch correlation open through its log-determinant."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import FeatureTerm, TermValue
from fedblade.losses._checks import check_choice, check_positive
from fedblade.losses._standardised import FORMS, Evaluation, Form, Part, evaluate, is_dual
from fedblade.losses._zscore import ZScore

Precision = Literal["f64", "f32"]


def lddecorr(
    z: Tensor,
    eps: float = 1e-4,
    *,
    var_eps: float = 1e-8,
    ddof: int = 0,
    form: Form = "auto",
    precision: Precision = "f64",
    mask: Tensor | None = None,
) -> Tensor:
    """Negative log-determinant of the correlation of a batch of features.

    L = -log det(ZᵀZ/N + ε·I_d) with Z the z-score of `z [batch, dim]` (FedBlade, Eq. 11; `eps` is ε). A batch of one
    sample gives 0. The value includes the constant -(d - N + 1)·log ε of a small batch, as in the formula.

    Deviations: the paper factorises the d × d matrix in float32. Its condition number reaches d/ε, the reciprocal of
    float32 resolution, and the gradient is then wrong by 20 to 80 %. Here the z-score is computed in the dtype of `z`
    and the rest in float64 with the smaller matrix: log det(ZZᵀ/N + ε·I_N) + (d - N)·log ε. `form="primal"` with
    `precision="f32"` is the paper's arithmetic. Gradients are in closed form, -(2/N)(ZZᵀ/N + ε·I)⁻¹Z and that of the
    z-score; second derivatives are refused. A factorisation that fails is repeated in float64 and then with up to
    1000·ε; a batch that still fails gives 0. Float64 cannot fail with the usual ε, so failures are not checked then.
    """
    result = evaluate(z, mask, ZScore(var_eps, ddof), _LogDet(eps, form, precision))
    return (z * 0).sum() if result is None else result.value.to(z.dtype)


@losses.register("lddecorr", paper="FedBlade, Eq. 11")
@dataclass(frozen=True, kw_only=True)
class LDDecorr(FeatureTerm):
    """Negative log-determinant of the features' batch correlation, see `lddecorr`.

    It logs `ld_centered`, the value without the constant of the directions that a batch of N samples cannot fill
    (L + (d - min(N - 1, d))·log ε), and counts failed factorisations and features with nearly no variance.
    """

    name: ClassVar[str] = "decorr"
    eps: float = 1e-4
    var_eps: float = 1e-8
    ddof: int = 0
    form: Form = "auto"
    precision: Precision = "f64"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._parts()

    def __call__(self, features: Tensor, mask: Tensor | None) -> TermValue:
        """The loss of one batch of features."""
        result = evaluate(features, mask, *self._parts())
        if result is None:
            return TermValue((features * 0).sum(), _logs(features.new_zeros(3)))
        return TermValue(result.value.to(features.dtype), self._measured(features, mask, result))

    def _parts(self) -> "tuple[ZScore, _LogDet]":
        return ZScore(self.var_eps, self.ddof), _LogDet(self.eps, self.form, self.precision)

    def _measured(self, features: Tensor, mask: Tensor | None, result: Evaluation) -> dict[str, Tensor]:
        rows, dim = features.shape
        value = result.value.detach()
        n = torch.full_like(value, rows) if mask is None else (mask != 0).sum().to(value.dtype)
        centred = value + (dim - (n - 1).clamp(max=dim)) * math.log(self.eps)
        failed = (result.failed != 0).to(value.dtype)
        counted = torch.stack((centred, failed, result.count_dead(mask)))
        return _logs(torch.where(n > 1, counted, 0.0).to(features.dtype))


def _logs(entries: Tensor) -> dict[str, Tensor]:
    names = ("ld_centered", "count_cholesky_failures", "count_dead_features")
    return dict(zip(names, entries.unbind(), strict=True))


@dataclass(frozen=True)
class _LogDet:
    """-log det(ZᵀZ/n + ε·I) by a Cholesky factor of the smaller or of the chosen Gram matrix."""

    eps: float
    form: Form
    precision: Precision

    def __post_init__(self) -> None:
        check_positive("eps", self.eps, 1e-4)
        check_choice("form", self.form, FORMS)
        check_choice("precision", self.precision, ("f64", "f32"))

    def dtype(self, own: torch.dtype) -> torch.dtype:  # noqa: ARG002 - the precision is fixed
        return torch.float64 if self.precision == "f64" else torch.float32

    def value(self, Z: Tensor, n: float | Tensor) -> Part:
        part = self._attempt(Z, n, self.eps)
        if self._cannot_fail(Z):
            return part
        part = _without_failures(part)
        for factor in (10, 100, 1000) if Z.dtype == torch.float64 else (1, 10, 100, 1000):
            if not bool(part.failed.any()):
                break
            part = _replace_failed(part, _without_failures(self._attempt(Z.double(), n, self.eps * factor)))
        # 0·Σ is 0, but NaN if features are not finite: that must not look like a failed factorisation.
        return part._replace(value=torch.where(part.failed, Z.sum((-2, -1)) * 0, part.value))

    def gradient(self, Z: Tensor, n: float | Tensor, part: Part) -> Tensor:  # noqa: ARG002 - n is in the factor
        minus_two_inverses = _inverse(part.work) * -2
        wide = Z.to(part.work.dtype)
        gradient = minus_two_inverses @ wide if is_dual(self.form, Z) else wide @ minus_two_inverses
        return gradient if self._cannot_fail(Z) else torch.where(part.failed[..., None, None], 0.0, gradient)

    def _attempt(self, Z: Tensor, n: float | Tensor, eps: float) -> Part:
        """Factorise the Gram matrix + nε·I; not dividing by n saves work here and in the gradient."""
        gram = Z @ Z.mT if is_dual(self.form, Z) else Z.mT @ Z
        order = gram.shape[-1]
        rows = n if isinstance(n, float) else n[..., 0].to(gram.dtype)
        gram.diagonal(dim1=-2, dim2=-1).add_(rows * eps)
        factor, info = torch.linalg.cholesky_ex(gram)
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) * 2
        log_n = math.log(rows) if isinstance(rows, float) else rows[..., 0].log()
        return Part(order * log_n - (Z.shape[-1] - order) * math.log(eps) - log_det, info, factor)

    def _cannot_fail(self, Z: Tensor) -> bool:
        """Wilkinson's bound 20·m^1.5·κ·u < 1 for order m, with κ <= d/ε + 1 from the trace; it reads no data."""
        rows, dim = Z.shape[-2:]
        order = rows if is_dual(self.form, Z) else dim
        return 20 * order * math.sqrt(order) * (dim / self.eps + 1) * torch.finfo(Z.dtype).eps / 2 < 1


def _inverse(factor: Tensor) -> Tensor:
    """(LLᵀ)⁻¹ = WᵀW with W = L⁻¹; `torch.cholesky_inverse` cannot be captured in a CUDA graph."""
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    inverse: Tensor = torch.linalg.solve_triangular(factor, identity.expand(factor.shape), upper=False)
    return inverse.mT @ inverse


def _without_failures(part: Part) -> Part:
    """The part with failures as truth values, and with ones as the factor of failures, which have an inverse."""
    failed = part.failed != 0
    return Part(part.value, failed, torch.where(failed[..., None, None], 1.0, part.work))


def _replace_failed(part: Part, retry: Part) -> Part:
    failed = part.failed
    work = torch.where(failed[..., None, None], retry.work, part.work)
    return Part(torch.where(failed, retry.value, part.value), failed & retry.failed, work)
