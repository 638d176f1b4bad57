"""Batch normalisation and max-pooling in one: only the largest value of a window is normalised."""

from typing import Any

import torch
from torch import Tensor, nn

from fedblade.engines.layers._base import Norm


def is_plain(module: nn.Module) -> bool:
    """Whether a layer pools windows that neither overlap nor reach over the edge."""
    if type(module) is not nn.MaxPool2d or module.ceil_mode or module.return_indices:
        return False
    return module.kernel_size == module.stride and _both(module.padding) == (0, 0) and _both(module.dilation) == (1, 1)


def keeps_order(norm: Norm) -> bool:
    """Whether the normalisation keeps the order of numbers, so that the largest stays the largest."""
    return bool((norm.weight > 0).all())


def pooled(maps: Tensor, norm: Norm, module: nn.MaxPool2d, *, relu: bool) -> Tensor:
    """Normalised and pooled maps; moves the running statistics."""
    outputs, mean, var = NormPool.apply(maps, norm.weight, norm.bias, norm.eps, _both(module.kernel_size), relu)  # type: ignore[no-untyped-call]
    if norm.running is not None:
        with torch.no_grad():
            for kept, new in ((norm.running.mean, mean), (norm.running.var, var)):
                kept.mul_(1 - norm.running.momentum).add_(new, alpha=norm.running.momentum)
            norm.running.batches.add_(1)
    result: Tensor = outputs
    return result


class NormPool(torch.autograd.Function):
    """The largest of relu(w·(x − mean)/sqrt(var + eps) + b) over windows, for w > 0; also mean and unbiased variance.

    Let ĝ be the gradient at the largest number of each window and 0 elsewhere, and x̂ = (x − mean)/sqrt(var + eps). The
    gradient is w/sqrt(var + eps)·(ĝ − mean ĝ − x̂·mean(ĝ·x̂)), where means over ĝ need the pooled numbers alone.
    """

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, weight: Tensor, bias: Tensor, eps: float, kernel: tuple[int, int], relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean, var = torch.batch_norm_update_stats(maps, None, None, 0.0)
        inverse = (var + eps).rsqrt()
        scale = inverse * weight
        largest, indices = torch.ops.aten.max_pool2d_with_indices(maps, kernel, kernel)
        outputs = torch.addcmul(_channels(bias - mean * scale), largest, _channels(scale))
        outputs = outputs.relu_() if relu else outputs
        # 1 where the ReLU lets through. Outputs are not saved, because a later layer may change them in place.
        passed = outputs.sign() if relu else None
        ctx.save_for_backward(maps, largest, indices, passed, mean, inverse, scale)
        ctx.kernel = kernel
        count = maps.numel() // maps.shape[1]
        unbiased = var * (count / max(count - 1, 1))
        ctx.mark_non_differentiable(mean, unbiased)
        return outputs, mean, unbiased

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        maps, largest, indices, passed, mean, inverse, scale = ctx.saved_tensors
        gradient = upstream if passed is None else upstream * passed
        total = gradient.sum((0, 2, 3))
        along = (gradient * (largest - _channels(mean))).sum((0, 2, 3)) * inverse
        count = maps.numel() // maps.shape[1]
        factor = -scale * inverse * along / count
        constant = -scale * total / count - factor * mean
        whole = torch.addcmul(_channels(constant), maps, _channels(factor))
        # Windows do not overlap: every number but the largest ones gets an exact zero.
        at_largest = torch.ops.aten.max_pool2d_with_indices_backward(
            gradient * _channels(scale), maps, ctx.kernel, ctx.kernel, (0, 0), (1, 1), False, indices
        )
        return whole.add_(at_largest), along, total, None, None, None


def _channels(numbers: Tensor) -> Tensor:
    return numbers[:, None, None]


def _both(size: Any) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)
