"""Batch normalisation: statistics of each client's real samples alone."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedblade.engines.layers._base import Lane, Shared, rule


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
    momentum = _momentum(norm, tensors, shared) if shared.training and mean is not None else 0.0
    if masked:
        outputs, batch_mean, batch_var = _masked(maps, weight, bias, shared, norm.eps)
        if shared.training and mean is not None and var is not None:
            _follow(mean, batch_mean, momentum)
            _follow(var, batch_var, momentum)
    else:
        outputs = functional.batch_norm(maps, mean, var, weight, bias, by_batch, momentum, norm.eps)
        outputs = outputs.relu_() if shared.relu else outputs
    if flat:
        return Lane(outputs.reshape(len(outputs), shared.clients, -1).transpose(0, 1))
    return Lane(outputs, folded=True)


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
    channels = maps.shape[1] // shared.clients
    pixels = maps[0, 0].numel()
    if maps.is_cuda and maps.dim() == 4 and maps.dtype in (torch.float32, torch.bfloat16):
        return _by_kernels(maps, mask, weight, bias, eps, relu=shared.relu)
    rows = mask.t().repeat_interleave(channels, dim=1).to(maps.dtype)
    real = rows.reshape(*rows.shape, *(1,) * (maps.dim() - 2))
    count = (mask.sum(1).to(maps.dtype) * pixels).repeat_interleave(channels)
    normal, mean, var = _MaskedNorm.apply(maps, real, count, eps)  # type: ignore[no-untyped-call]
    shape = (1, -1, *(1,) * (maps.dim() - 2))
    if weight is not None:
        normal = normal * weight.reshape(shape)
    if bias is not None:
        normal = normal + bias.reshape(shape)
    normal = normal.relu() if shared.relu else normal
    return normal, mean, var * (count / (count - 1).clamp(min=1))


def _by_kernels(
    maps: Tensor, mask: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, *, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The same in few passes over the memory of a GPU."""
    from fedblade.engines.layers._norm_kernels import MaskedNorm

    own = maps.new_ones(maps.shape[1], dtype=torch.float32) if weight is None else weight
    zero = maps.new_zeros(maps.shape[1], dtype=torch.float32) if bias is None else bias
    wide = maps.contiguous(memory_format=torch.channels_last)
    outputs, mean, var = MaskedNorm.apply(wide, mask.t().contiguous(), own, zero, eps, relu)  # type: ignore[no-untyped-call]
    return outputs, mean, var


class _MaskedNorm(torch.autograd.Function):
    """(x − mean)/sqrt(var + eps) with the moments of the rows whose mask is 1; other rows get 0 and give 0."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, real: Tensor, count: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        axes = (0, *range(2, maps.dim()))
        shape = (1, -1, *(1,) * (maps.dim() - 2))
        held = torch.where(real != 0, maps, 0.0)
        mean = held.sum(axes) / count
        centred = (held - mean.reshape(shape)) * real
        var = centred.square().sum(axes) / count
        inverse = (var + eps).rsqrt()
        normal = centred * inverse.reshape(shape)
        ctx.save_for_backward(normal, inverse, real, count)
        ctx.mark_non_differentiable(mean, var)
        return normal, mean, var

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor, None, None, None]:
        normal, inverse, real, count = ctx.saved_tensors
        axes = (0, *range(2, normal.dim()))
        shape = (1, -1, *(1,) * (normal.dim() - 2))
        up = upstream * real
        mean = (up.sum(axes) / count).reshape(shape)
        along = ((up * normal).sum(axes) / count).reshape(shape)
        return (up - mean - normal * along) * inverse.reshape(shape) * real, None, None, None
