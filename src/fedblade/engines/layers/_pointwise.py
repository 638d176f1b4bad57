"""1×1 convolutions as batched products on strided views, which read and write folded maps without a copy."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class Pointwise(torch.autograd.Function):
    """Maps [batch, clients·in, height, width], channels last, times weights [clients, out, in] of each client."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(maps, weight)
        return _product(maps, weight.mT)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None]:
        maps, weight = ctx.saved_tensors
        upstream = upstream.contiguous(memory_format=torch.channels_last)
        clients = len(weight)
        gradient = _product(upstream, weight) if ctx.needs_input_grad[0] else None
        weight_gradient = _over_pixels(upstream, maps, clients) if ctx.needs_input_grad[1] else None
        return gradient, weight_gradient


def pointwise(maps: Tensor, weight: Tensor) -> Tensor:
    """The convolution of folded maps with weights [clients, out, in]."""
    outputs: Tensor = Pointwise.apply(maps.contiguous(memory_format=torch.channels_last), weight)  # type: ignore[no-untyped-call]
    return outputs


def patches(inputs: Tensor, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    """The inputs of every output pixel of a convolution, as channels of folded maps, filled up to a multiple of 4.

    Inputs are [clients, batch, channels, height, width]. The convolution then is a 1×1 convolution of these maps.
    Products are fast if the number of columns is a multiple of 4.
    """
    wide = functional.pad(inputs, (padding[1], padding[1], padding[0], padding[0]))
    windows = wide.unfold(3, kernel[0], stride[0]).unfold(4, kernel[1], stride[1])
    clients, batch, channels, height, width = windows.shape[:5]
    size = channels * kernel[0] * kernel[1]
    folded = inputs.new_zeros(batch, height, width, clients, -(-size // 4) * 4)
    into = folded[..., :size].view(batch, height, width, clients, channels, *kernel)
    into.copy_(windows.permute(1, 3, 4, 0, 2, 5, 6))
    return folded.flatten(3).permute(0, 3, 1, 2)


def _flat(maps: Tensor) -> Tensor:
    """The pixels [batch·height·width, channels], a view of maps with channels last."""
    return maps.permute(0, 2, 3, 1).reshape(-1, maps.shape[1])


def _by_client(maps: Tensor, clients: int) -> Tensor:
    """The pixels of each client [clients, batch·height·width, channels], a view."""
    pixels = _flat(maps)
    return pixels.view(len(pixels), clients, -1).transpose(0, 1)


def _product(maps: Tensor, matrices: Tensor) -> Tensor:
    """Multiply every client's pixels by its matrix [in, out] and write them side by side."""
    batch, _, height, width = maps.shape
    clients, _, out = matrices.shape
    result = maps.new_empty(batch, height, width, clients * out)
    by_client = result.reshape(batch * height * width, clients, out).transpose(0, 1)
    torch.bmm(_by_client(maps, clients), matrices, out=by_client)
    return result.permute(0, 3, 1, 2)


def _over_pixels(upstream: Tensor, maps: Tensor, clients: int) -> Tensor:
    """Gradient of the weights: products over all pixels."""
    if maps.is_cuda:
        from fedblade.engines.layers._product_kernels import fits, over_rows

        if fits(_flat(upstream), _flat(maps), clients):
            return over_rows(_flat(upstream), _flat(maps), clients)
    return torch.bmm(_by_client(upstream, clients).mT, _by_client(maps, clients))
