"""Batch normalisation with the statistics of each client's real samples."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedblade.core.frozen import FrozenNorm
from fedblade.engines.layers import _on_gpu
from fedblade.engines.layers._base import Activation, Norm, Running, Shared, rule
from fedblade.engines.layers._norm_pool import keeps_order


@rule(nn.BatchNorm1d, nn.BatchNorm2d)
def batch_norm(module: nn.Module, tensors: Mapping[str, Tensor], inputs: Activation, shared: Shared) -> Activation:
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
    by_kernels = _on_gpu.batch_norm(norm, tensors, maps, shared) if _on_gpu.kernels_fit(maps) else None
    if by_kernels is not None:
        return by_kernels
    deferred = _deferred_to_pooling(norm, tensors, maps, shared) if shared.defer and by_batch and not masked else None
    if deferred is not None:
        return deferred
    momentum = _momentum(norm, tensors, shared) if shared.training and mean is not None else 0.0
    if masked:
        outputs, batch_mean, batch_var = _masked(maps, weight, bias, shared, norm.eps)
        if shared.training and mean is not None and var is not None:
            _move_towards(mean, batch_mean, momentum)
            _move_towards(var, batch_var, momentum)
    else:
        outputs = functional.batch_norm(maps, mean, var, weight, bias, by_batch, momentum, norm.eps)
        outputs = outputs.relu_() if shared.relu else outputs
    return _as_activation(outputs, shared, flat=flat)


@rule(FrozenNorm)
def frozen_norm(module: nn.Module, tensors: Mapping[str, Tensor], inputs: Activation, shared: Shared) -> Activation:
    """Normalise clients·channels by stored statistics. No sample changes them, so that padding does no harm."""
    flat = not inputs.folded and inputs.value.dim() == 3
    maps = inputs.value.transpose(0, 1).flatten(1) if flat else inputs.fold()
    mean, var = tensors["running_mean"].flatten(), tensors["running_var"].flatten()
    weight, bias = (tensors[name].flatten() if name in tensors else None for name in ("weight", "bias"))
    eps = cast("FrozenNorm", module).eps
    outputs = functional.batch_norm(maps, mean, var, weight, bias, training=False, eps=eps)
    return _as_activation(outputs, shared, flat=flat)


def _as_activation(outputs: Tensor, shared: Shared, *, flat: bool) -> Activation:
    """Normalised maps as an activation: folded, or split if a sample is a vector."""
    if flat:
        return Activation(outputs.reshape(len(outputs), shared.clients, -1).transpose(0, 1))
    return Activation(outputs, folded=True)


def _deferred_to_pooling(
    norm: nn.BatchNorm2d, tensors: Mapping[str, Tensor], maps: Tensor, shared: Shared
) -> Activation | None:
    """The maps unchanged, with a normalisation that the pooling layer behind computes.

    None where the normalisation would change which value of a window is the largest.
    """
    if _on_gpu.is_on_gpu(maps) or "weight" not in tensors or maps.dtype != tensors["weight"].dtype:
        return None
    running = None
    if shared.training and "running_mean" in tensors:
        mean, var = tensors["running_mean"].flatten(), tensors["running_var"].flatten()
        running = Running(mean, var, tensors["num_batches_tracked"], cast("float", norm.momentum))
    pending = Norm(tensors["weight"].flatten(), tensors["bias"].flatten(), running, norm.eps, relu=False)
    return Activation(maps, folded=True, norm=pending) if keeps_order(pending) else None


def _momentum(norm: nn.BatchNorm2d, tensors: Mapping[str, Tensor], shared: Shared) -> float:
    """Count the batch and return the momentum of the statistics, which is the same for all clients."""
    if shared.training and "num_batches_tracked" in tensors:
        tensors["num_batches_tracked"].add_(1)
    return cast("float", norm.momentum)


def _move_towards(running: Tensor, batch: Tensor, momentum: float) -> None:
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
    """w·(x − mean)/sqrt(var + eps) + b with the moments of real samples; padding gives 0 and must get gradient 0.

    Also returns mean and unbiased variance. The plain layer's kernel adds up over the batch and knows no padding.
    Therefore padding is set to 0, and a guess of the mean is subtracted from all numbers, so that little cancels.
    """

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, mask: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        real = mask.t().repeat_interleave(maps.shape[1] // len(mask), 1)
        guess = maps[0].flatten(1).mean(1).nan_to_num() if maps.dim() > 2 else maps[0].nan_to_num()
        centred = _where_real(maps - _like(guess[None], maps), real)
        count, mean, var = _moments(centred, real)
        inverse = (var + eps).rsqrt()
        scale = inverse if weight is None else inverse * weight
        shift = -mean * scale if bias is None else bias - mean * scale
        factor = scale * real
        outputs = torch.addcmul(_like(shift * real, maps), centred, _like(factor, maps))
        ctx.save_for_backward(centred, real, weight, mean, inverse, scale, count)
        unbiased = var * (count / (count - 1).clamp(min=1))
        true_mean = mean + guess
        ctx.mark_non_differentiable(true_mean, unbiased)
        return outputs, true_mean, unbiased

    @staticmethod
    def backward(
        ctx: Any, upstream: Tensor, *_: Tensor
    ) -> tuple[Tensor | None, None, Tensor | None, Tensor | None, None]:
        centred, real, weight, mean, inverse, scale, count = ctx.saved_tensors
        _, along, total = torch.ops.aten.native_batch_norm_backward(
            upstream, centred, weight, None, None, mean, inverse, True, 0.0, [False, True, True]
        )
        if not ctx.needs_input_grad[0]:
            return None, None, along, total, None
        factor = -scale * inverse * along / count
        constant = -scale * total / count - factor * mean
        gradient = torch.addcmul(_like(constant * real, centred), centred, _like(factor * real, centred))
        gradient.addcmul_(upstream, _like(scale[None], centred))
        wanted = ctx.needs_input_grad
        return gradient, None, along if wanted[2] else None, total if wanted[3] else None, None


def _where_real(numbers: Tensor, real: Tensor) -> Tensor:
    """The numbers of real samples in place, and 0 for padding, whatever it is.

    With bits that are all 1 or all 0, because `torch.where` takes four times as long on a CPU.
    """
    bits = torch.int32 if numbers.dtype.itemsize == 4 else torch.int64
    return numbers.view(bits).bitwise_and_(_like(-real.to(bits), numbers)).view(numbers.dtype)


def _moments(centred: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Count, mean and variance of the real numbers of each channel; all others must be 0.

    The plain layer's backward kernel adds up Σx and Σx² if x is given as its own gradient, with mean 0 and deviation 1.
    Padding adds exact zeros to both. The forward kernel would add the square of the mean once for each padded number,
    always rounded the same way. For a batch half full that is 1e-5 of the variance, which is enough to change the sign
    of values before a later ReLU.
    """
    channels = centred.shape[1]
    count = (real.sum(0) * (centred.numel() // channels // len(centred))).to(centred.dtype).clamp(min=1)
    zeros, ones = centred.new_zeros(channels), centred.new_ones(channels)
    _, squares, total = torch.ops.aten.native_batch_norm_backward(
        centred, centred, ones, None, None, zeros, ones, True, 0.0, [False, True, True]
    )
    mean = total / count
    return count, mean, (squares / count - mean.square()).clamp(min=0)


def _like(numbers: Tensor, maps: Tensor) -> Tensor:
    """Numbers [batch, channels] in a shape that broadcasts over maps [batch, channels, …]."""
    return numbers.reshape(*numbers.shape, *(1,) * (maps.dim() - 2))
