"""Batch normalisation: statistics of each client's real samples alone."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedblade.core.frozen import FrozenNorm
from fedblade.engines.layers import _on_gpu
from fedblade.engines.layers._base import Lane, Norm, Running, Shared, rule
from fedblade.engines.layers._norm_pool import grows


@rule(nn.BatchNorm1d, nn.BatchNorm2d)
def batch_norm(module: nn.Module, tensors: Mapping[str, Tensor], inputs: Lane, shared: Shared) -> Lane:
    """Normalise clients·channels as more channels; running statistics [clients, channels] change in place."""
    norm = cast("nn.BatchNorm2d", module)
    flat = not inputs.folded and inputs.value.dim() == 3
    maps = inputs.value.transpose(0, 1).flatten(1) if flat else inputs.fold()
    weight, bias, mean, var = (
        tensors[name].flatten() if name in tensors else None
        for name in ("weight", "bias", "running_mean", "running_var")
    )
    by_batch = shared.training or mean is None
    masked = by_batch and shared.mask is not None
    found = _on_gpu.batch_norm(norm, tensors, maps, shared) if _on_gpu.kernels_fit(maps) else None
    if found is not None:
        return found
    later = _left_to_pooling(norm, tensors, maps, shared) if shared.defer and by_batch and not masked else None
    if later is not None:
        return later
    momentum = _momentum(norm, tensors, shared) if shared.training and mean is not None else 0.0
    if masked:
        outputs, batch_mean, batch_var = _masked(maps, weight, bias, shared, norm.eps)
        if shared.training and mean is not None and var is not None:
            _follow(mean, batch_mean, momentum)
            _follow(var, batch_var, momentum)
    else:
        outputs = functional.batch_norm(maps, mean, var, weight, bias, by_batch, momentum, norm.eps)
        outputs = outputs.relu_() if shared.relu else outputs
    return _laid_out(outputs, shared, flat=flat)


@rule(FrozenNorm)
def frozen_norm(module: nn.Module, tensors: Mapping[str, Tensor], inputs: Lane, shared: Shared) -> Lane:
    """Normalise clients·channels by stored statistics, which no sample changes: padding does no harm."""
    flat = not inputs.folded and inputs.value.dim() == 3
    maps = inputs.value.transpose(0, 1).flatten(1) if flat else inputs.fold()
    mean, var = tensors["running_mean"].flatten(), tensors["running_var"].flatten()
    weight, bias = (tensors[name].flatten() if name in tensors else None for name in ("weight", "bias"))
    eps = cast("FrozenNorm", module).eps
    outputs = functional.batch_norm(maps, mean, var, weight, bias, training=False, eps=eps)
    return _laid_out(outputs, shared, flat=flat)


def _laid_out(outputs: Tensor, shared: Shared, *, flat: bool) -> Lane:
    """Normalised maps as a lane: folded, or split where a sample is a vector."""
    if flat:
        return Lane(outputs.reshape(len(outputs), shared.clients, -1).transpose(0, 1))
    return Lane(outputs, folded=True)


def _left_to_pooling(norm: nn.BatchNorm2d, tensors: Mapping[str, Tensor], maps: Tensor, shared: Shared) -> Lane | None:
    """The maps as they are and what the pooling layer behind has to do; None where the order would not be kept."""
    if maps.is_cuda or "weight" not in tensors or maps.dtype != tensors["weight"].dtype:
        return None
    running = None
    if shared.training and "running_mean" in tensors:
        mean, var = tensors["running_mean"].flatten(), tensors["running_var"].flatten()
        running = Running(mean, var, tensors["num_batches_tracked"], cast("float", norm.momentum))
    pending = Norm(tensors["weight"].flatten(), tensors["bias"].flatten(), running, norm.eps, relu=False)
    return Lane(maps, folded=True, norm=pending) if grows(pending) else None


def _momentum(norm: nn.BatchNorm2d, tensors: Mapping[str, Tensor], shared: Shared) -> float:
    """Count the batch and say how far the statistics move; a cumulative mean would differ between clients."""
    if shared.training and "num_batches_tracked" in tensors:
        tensors["num_batches_tracked"].add_(1)
    return cast("float", norm.momentum)


def _follow(running: Tensor, batch: Tensor, momentum: float) -> None:
    with torch.no_grad():
        running.mul_(1 - momentum).add_(batch.detach().to(running.dtype), alpha=momentum)


def _masked(
    maps: Tensor, weight: Tensor | None, bias: Tensor | None, shared: Shared, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised maps, and mean and unbiased variance of the real samples for the running statistics."""
    mask = shared.mask
    if mask is None:
        raise AssertionError("a pass without a mask takes the plain layer")
    wide = maps if maps.dtype.itemsize > 2 else maps.float()
    outputs, mean, var = _MaskedNorm.apply(wide, mask, weight, bias, eps)  # type: ignore[no-untyped-call]
    outputs = outputs.to(maps.dtype)
    return outputs.relu_() if shared.relu else outputs, mean, var


class _MaskedNorm(torch.autograd.Function):
    """w·(x − mean)/sqrt(var + eps) + b with the moments of real samples; padding gets 0 and must be given gradient 0.

    Also returns mean and unbiased variance. Sums over the batch come from a kernel of the plain layer, which would take
    padding in: numbers are moved by a guess of the mean, so that little cancels, and padding is 0.
    """

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, mask: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        real = mask.t().repeat_interleave(maps.shape[1] // len(mask), 1)
        own = _like(real, maps)
        guess = maps[0].flatten(1).mean(1).nan_to_num() if maps.dim() > 2 else maps[0].nan_to_num()
        held = torch.where(own, maps - _like(guess[None], maps), 0.0)
        count, mean, var = _moments(held, real)
        inverse = (var + eps).rsqrt()
        scale = inverse if weight is None else inverse * weight
        shift = -mean * scale if bias is None else bias - mean * scale
        factor = scale * real
        outputs = torch.addcmul(_like(shift * real, maps), held, _like(factor, maps))
        ctx.save_for_backward(held, real, weight, mean, inverse, scale, count)
        unbiased = var * (count / (count - 1).clamp(min=1))
        moved = mean + guess
        ctx.mark_non_differentiable(moved, unbiased)
        return outputs, moved, unbiased

    @staticmethod
    def backward(
        ctx: Any, upstream: Tensor, *_: Tensor
    ) -> tuple[Tensor | None, None, Tensor | None, Tensor | None, None]:
        held, real, weight, mean, inverse, scale, count = ctx.saved_tensors
        _, along, total = torch.ops.aten.native_batch_norm_backward(
            upstream, held, weight, None, None, mean, inverse, True, 0.0, [False, True, True]
        )
        if not ctx.needs_input_grad[0]:
            return None, None, along, total, None
        tilt = -scale * inverse * along / count
        level = -scale * total / count - tilt * mean
        slope = torch.addcmul(_like(level * real, held), held, _like(tilt * real, held))
        slope.addcmul_(upstream, _like(scale[None], held))
        return slope, None, along if ctx.needs_input_grad[2] else None, total if ctx.needs_input_grad[3] else None, None


def _moments(held: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers, mean and variance of each channel's real samples, where the others hold 0.

    Σx and Σx² are what the plain layer's backward kernel adds up for x as its own gradient, mean 0 and deviation 1.
    Padding adds exact zeros to both. Its forward kernel would add the square of the mean once for each padded number,
    always rounded the same way: 1e-5 of the variance for a batch half full, and enough to push values over a ReLU's
    edge further down.
    """
    count = (real.sum(0) * (held.numel() // held.shape[1] // len(held))).to(held.dtype).clamp(min=1)
    none, one = held.new_zeros(held.shape[1]), held.new_ones(held.shape[1])
    _, squares, total = torch.ops.aten.native_batch_norm_backward(
        held, held, one, None, None, none, one, True, 0.0, [False, True, True]
    )
    mean = total / count
    return count, mean, (squares / count - mean.square()).clamp(min=0)


def _like(rows: Tensor, maps: Tensor) -> Tensor:
    """Numbers [batch, channels], to be used with maps [batch, channels, …]."""
    return rows.reshape(*rows.shape, *(1,) * (maps.dim() - 2))
