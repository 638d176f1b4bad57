"""Losses of the z-scored batch: one autograd function with a closed-form gradient, shared by the decorrelation terms.

The function accepts leading axes, so that `vmap` only has to move its axis to the front: under any transform the
arithmetic runs on plain tensors, once for all clients.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from fedblade.core.errors import Unsupported
from fedblade.losses._shapes import check_mask, check_matrix
from fedblade.losses._zscore import ZScore, num_real, standardise, standardise_backward

Form = Literal["auto", "dual", "primal"]
FORMS: tuple[Form, ...] = ("auto", "dual", "primal")


class Part(NamedTuple):
    """The result of a kernel: values [...], whether they failed [...] (not 0: failed), and `work` for the gradient."""

    value: Tensor
    failed: Tensor
    work: Tensor


class Kernel(Protocol):
    """A scalar function of Z [..., batch, dim] and its number of real rows, a float or a tensor [..., 1, 1]."""

    def dtype(self, own: torch.dtype) -> torch.dtype:
        """The dtype of the computation, for features of the dtype `own`."""

    def value(self, Z: Tensor, n: float | Tensor) -> Part:
        """The values, and the tensor that the gradient needs."""

    def gradient(self, Z: Tensor, n: float | Tensor, part: Part) -> Tensor:
        """∂value/∂Z, 0 for values that failed."""


class Evaluation(NamedTuple):
    """A loss of the standardised batch: its value, whether it failed, and 1/sqrt(var + var_eps) [1, dim]."""

    value: Tensor
    failed: Tensor
    inverse_std: Tensor
    score: ZScore

    def count_dead(self, mask: Tensor | None) -> Tensor:
        """Number of features with nearly no variance, in the dtype of the value; 0 with a single real sample."""
        dead = self.score.count_dead(self.inverse_std).to(self.value.dtype)
        return dead if mask is None else torch.where((mask != 0).sum() > 1, dead, 0.0)


def evaluate(features: Tensor, mask: Tensor | None, score: ZScore, kernel: Kernel) -> Evaluation | None:
    """Evaluate `kernel` on `features [batch, dim]`; None for a batch of fewer than two rows."""
    check_matrix("features", features)
    check_mask(mask, features)
    if features.shape[0] < 2:
        return None
    wide = features.float() if features.dtype in (torch.float16, torch.bfloat16) else features
    value, failed, inverse_std, *_ = _apply(_Standardised, wide, mask, score, kernel)
    return Evaluation(value, failed, inverse_std, score)


def is_dual(form: Form, Z: Tensor) -> bool:
    """Whether to use batch × batch matrices; "auto" takes the side of smaller rank, as centring costs one rank."""
    rows, dim = Z.shape[-2:]
    return rows - 1 < dim if form == "auto" else form == "dual"


@contextmanager
def exact_products(device: torch.device) -> Iterator[None]:
    """Turn autocast and TF32 off in the body: these losses divide by small numbers, which amplifies rounding."""
    matmul = torch.backends.cuda.matmul
    reduced = device.type == "cuda" and matmul.fp32_precision == "tf32"
    if reduced:
        matmul.fp32_precision = "ieee"
    try:
        casting = torch.is_autocast_enabled(device.type)
        with torch.autocast(device.type, enabled=False) if casting else nullcontext():
            yield
    finally:
        if reduced:
            matmul.fp32_precision = "tf32"


class _Standardised(torch.autograd.Function):
    """Values, failures and inverse deviations for z [..., batch, dim]; the other outputs are for the gradient."""

    @staticmethod
    def forward(z: Tensor, mask: Tensor | None, score: ZScore, kernel: Kernel) -> tuple[Tensor, ...]:
        n = num_real(z, mask)
        Z, inverse_std = standardise(z, n, mask, score)
        Z = Z.to(kernel.dtype(z.dtype))
        with exact_products(z.device):
            value, failed, work = kernel.value(Z, n)
        if mask is not None:
            value = torch.where((mask != 0).sum(-1) > 1, value, 0.0)
        return value, failed, inverse_std, Z, work

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        z, mask, ctx.score, ctx.kernel = inputs
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(z, mask, *output)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, *_: None) -> tuple[Tensor | None, None, None, None]:
        if upstream is None:
            return None, None, None, None
        z, mask, *kept = ctx.saved_tensors
        inputs = (z, upstream, mask, *kept, ctx.score, ctx.kernel)
        # Without a graph no second derivative can be asked for, and the plain call is faster.
        graph = torch.is_grad_enabled()
        return _apply(_Gradient, *inputs) if graph else _Gradient.forward(*inputs), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        return _apply(_Standardised, *_to_front(info.batch_size, in_dims, inputs)), (0,) * 5


class _Gradient(torch.autograd.Function):
    """The first derivative, as a separate function, so that a second derivative is an error and not 0."""

    @staticmethod
    def forward(
        z: Tensor,
        upstream: Tensor,
        mask: Tensor | None,
        value: Tensor,
        failed: Tensor,
        inverse_std: Tensor,
        Z: Tensor,
        work: Tensor,
        score: ZScore,
        kernel: Kernel,
    ) -> Tensor:
        n = num_real(z, mask)
        with exact_products(z.device):
            gradient = kernel.gradient(Z, n, Part(value, failed, work))
        if mask is not None:
            upstream = torch.where((mask != 0).sum(-1) > 1, upstream, 0.0)
        scale = inverse_std * upstream[..., None, None]
        return standardise_backward(gradient, Z, scale, n, mask, score).to(z.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(_ctx: Any, *_: Tensor) -> Any:
        raise Unsupported("decorrelation losses have no second derivatives. Detach their gradient before using it.")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        return _apply(_Gradient, *_to_front(info.batch_size, in_dims, inputs)), 0


def _apply(function: Any, *inputs: Any) -> Any:
    return function.apply(*inputs)


def _to_front(size: int, in_dims: tuple[int | None, ...], inputs: tuple[Any, ...]) -> list[Any]:
    """Move the mapped axis of every tensor to the front; a tensor without this axis is expanded."""

    def move(value: Any, dim: int | None) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)

    return [move(value, dim) for value, dim in zip(inputs, in_dims, strict=True)]
