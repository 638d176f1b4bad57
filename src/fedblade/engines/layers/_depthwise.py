"""Depthwise 3×3 convolutions of folded maps on a GPU, alone or together with the normalisation before them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedblade.engines.layers import _depthwise_kernels as kernels
from fedblade.engines.layers import _rolling_kernels as rolling
from fedblade.engines.layers._base import Norm
from fedblade.engines.layers._norm_functions import (
    FINISH,
    Shape,
    blocks_of,
    facts_of,
    finish_gradients,
    through_norm,
)

CHANNELS = 32
FORWARD, BACKWARD = {"ROWS": 16, "num_warps": 4}, {"ROWS": 8, "num_warps": 2}
"""Tiles of a convolution of stride 2."""
DOWN, UP = {"COLUMNS": 16, "num_warps": 4}, {"COLUMNS": 8, "num_warps": 2}
"""Tiles of a convolution of stride 1, which goes down the rows: for outputs and for gradients."""
FILLED = 1056
"""Programs that fill a large GPU: with fewer, rows are cut into shorter segments."""


def depthwise(maps: Tensor, filters: Tensor, stride: int, sizes: Tensor, norm: Norm | None) -> Tensor:
    """The convolution of folded maps with filters [clients·channels, 9], padded by one.

    The first `sizes [clients]` samples of each client are real.
    """
    maps = maps.contiguous(memory_format=torch.channels_last)
    weight, bias = (None, None) if norm is None else (norm.weight, norm.bias)
    outputs: Tensor = Depthwise.apply(maps, filters, weight, bias, stride, sizes, norm)  # type: ignore[no-untyped-call]
    return outputs


class Depthwise(torch.autograd.Function):
    """Filter relu(norm(maps)), or the maps themselves; normalised maps exist in registers only."""

    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        filters: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        stride: int,
        sizes: Tensor,
        norm: Norm | None,
    ) -> Tensor:
        facts = maps
        if norm is not None and norm.facts is not None:
            facts = norm.facts
        elif norm is not None and weight is not None and bias is not None:
            facts = facts_of(maps, sizes, weight, bias, norm.running, norm.eps)
        ctx.stride, ctx.flags = stride, {"NORM": norm is not None, "RELU": norm is not None and norm.relu}
        outputs = _forward(maps, filters, facts, stride, Shape.of(maps, len(sizes)), ctx.flags)
        ctx.save_for_backward(maps, filters, weight, bias, sizes, facts)
        return outputs

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        maps, filters, weight, bias, sizes, facts = ctx.saved_tensors
        upstream = upstream.contiguous(memory_format=torch.channels_last)
        shape = Shape.of(maps, len(sizes))
        gradient, parts = _backward(maps, upstream, sizes, filters, facts, ctx.stride, shape, ctx.flags)
        dfilters = torch.empty_like(filters)
        kernels.finish_filters[shape.blocks(FINISH["CHANNELS"]), 9](
            parts, dfilters, shape.channels, parts.shape[1], **FINISH
        )
        if not ctx.flags["NORM"]:
            return gradient, dfilters, None, None, None, None, None
        totals, dweight, dbias = finish_gradients(parts[9:], facts, weight, bias)
        through_norm(maps, gradient, gradient, sizes, facts, totals, relu=False)
        return gradient, dfilters, dweight, dbias, None, None, None


def _forward(
    maps: Tensor, filters: Tensor, facts: Tensor, stride: int, shape: Shape, flags: Mapping[str, bool]
) -> Tensor:
    batch, channels, height, width = maps.shape
    out_height, out_width = (height - 1) // stride + 1, (width - 1) // stride + 1
    size = (batch, channels, out_height, out_width)
    outputs = torch.empty(size, device=maps.device, dtype=maps.dtype, memory_format=torch.channels_last)
    if stride == 1:
        grid, segment = _segments(shape, batch, height, width, DOWN["COLUMNS"])
        rolling.forward[grid](
            maps, filters, outputs, facts, batch * width, shape.units, height, width, segment,
            **flags, ALIGN=shape.align, CHANNELS=CHANNELS, **DOWN,
        )  # fmt: skip
    else:
        rows = batch * out_height * out_width
        kernels.forward[blocks_of(rows, FORWARD["ROWS"]), shape.blocks(CHANNELS)](
            maps, filters, outputs, facts, rows, shape.units, height, width, out_height, out_width,
            **flags, ALIGN=shape.align, CHANNELS=CHANNELS, **FORWARD,
        )  # fmt: skip
    return outputs


def _backward(
    maps: Tensor,
    upstream: Tensor,
    sizes: Tensor,
    filters: Tensor,
    facts: Tensor,
    stride: int,
    shape: Shape,
    flags: Mapping[str, bool],
) -> tuple[Tensor, Tensor]:
    """Gradient of the convolution's input, and sums over stretches of rows [9 or 11, splits, channels]."""
    batch, channels, height, width = maps.shape
    gradient = torch.empty_like(maps, memory_format=torch.channels_last)
    sums = 11 if flags["NORM"] else 9
    if stride == 1:
        grid, segment = _segments(shape, batch, height, width, UP["COLUMNS"])
        parts = torch.empty(sums, grid[0] * grid[2], channels, device=maps.device)
        rolling.backward[grid](
            maps, upstream, gradient, sizes, filters, facts, parts, batch * width, shape.units, height, width,
            shape.per_client, segment, **flags, ALIGN=shape.align, CHANNELS=CHANNELS, **UP,
        )  # fmt: skip
    else:
        out = Shape.of(upstream, len(sizes))
        splits, per_split = out.stretches(BACKWARD["ROWS"], CHANNELS, 2 * FILLED)
        parts = torch.empty(sums, splits, channels, device=maps.device)
        kernels.backward[shape.blocks(CHANNELS), splits](
            maps, upstream, gradient, sizes, filters, facts, parts, out.rows, shape.units, height, width,
            *upstream.shape[2:], shape.per_client, per_split,
            **flags, ALIGN=shape.align, CHANNELS=CHANNELS, **BACKWARD,
        )  # fmt: skip
    return gradient, parts


def _segments(shape: Shape, batch: int, height: int, width: int, columns: int) -> tuple[tuple[int, int, int], int]:
    """Programs over columns, channels and segments, and the rows of a segment. Long segments read fewer rows twice."""
    across, blocks, segment = blocks_of(batch * width, columns), shape.blocks(CHANNELS), height
    while segment > 4 and across * blocks * blocks_of(height, segment) < FILLED:
        segment = blocks_of(segment, 2)
    return (across, blocks, blocks_of(height, segment)), segment
