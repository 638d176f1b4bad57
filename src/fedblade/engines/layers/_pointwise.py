"""1×1 convolutions as batched products on strided views: folded maps are read and written where they are."""

from typing import Any

import torch
from torch import Tensor


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
        slope = _product(upstream, weight) if ctx.needs_input_grad[0] else None
        own = None
        if ctx.needs_input_grad[1]:
            own = torch.bmm(_rows(upstream, clients).mT, _rows(maps, clients))
        return slope, own


def pointwise(maps: Tensor, weight: Tensor) -> Tensor:
    """The convolution of folded maps with weights [clients, out, in]."""
    outputs: Tensor = Pointwise.apply(maps.contiguous(memory_format=torch.channels_last), weight)  # type: ignore[no-untyped-call]
    return outputs


def _rows(maps: Tensor, clients: int) -> Tensor:
    """The pixels of each client [clients, batch·height·width, channels], a view of maps with channels last."""
    batch, channels, height, width = maps.shape
    pixels = maps.permute(0, 2, 3, 1).reshape(batch * height * width, clients, channels // clients)
    return pixels.transpose(0, 1)


def _product(maps: Tensor, matrices: Tensor) -> Tensor:
    """Multiply every client's pixels by its matrix [in, out] and write them side by side."""
    batch, _, height, width = maps.shape
    clients, _, out = matrices.shape
    result = maps.new_empty(batch, height, width, clients * out)
    places = result.reshape(batch * height * width, clients, out).transpose(0, 1)
    torch.bmm(_rows(maps, clients), matrices, out=places)
    return result.permute(0, 3, 1, 2)
