"""Masked batch normalisation on a GPU: one pass for the moments, one for the values, two for the gradient.

Maps are read as rows [batch·pixels, channels] with channels last. A row counts for a client if its sample is real.
The plain form in `_batch_norm.py` computes the same; tests compare the two.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _CHANNELS = 64, 64
_SPLITS = 64


@triton.jit
def _moments(
    x, mask, count, mean, m2, rows, channels, pixels, clients, per_client, per_split,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Number, mean and sum of squared deviations of the real rows of a stretch, merged tile by tile (Chan)."""
    column = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    split = tl.program_id(1)
    inside = column < channels
    owner = column // per_client
    seen = tl.zeros((CHANNELS,), tl.float32)
    centre = tl.zeros((CHANNELS,), tl.float32)
    spread = tl.zeros((CHANNELS,), tl.float32)
    first = split * per_split
    last = tl.minimum(first + per_split, rows)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        there = (row < last)[:, None] & inside[None, :]
        real = tl.load(mask + (row // pixels)[:, None] * clients + owner[None, :], mask=there, other=0).to(tl.float32)
        values = tl.load(x + row[:, None].to(tl.int64) * channels + column[None, :], mask=there, other=0.0).to(
            tl.float32
        )
        values = tl.where(real > 0, values, 0.0)
        number = tl.sum(real, 0)
        middle = tl.sum(values, 0) / tl.maximum(number, 1.0)
        apart = tl.where(real > 0, values - middle[None, :], 0.0)
        own = tl.sum(apart * apart, 0)
        total = seen + number
        gap = middle - centre
        share = number / tl.maximum(total, 1.0)
        spread += own + gap * gap * seen * share
        centre += gap * share
        seen = total
    place = split * channels + column
    tl.store(count + place, seen, mask=inside)
    tl.store(mean + place, centre, mask=inside)
    tl.store(m2 + place, spread, mask=inside)


@triton.jit
def _finish_moments(
    count, mean, m2, weight, bias, facts, channels, splits, eps, CHANNELS: tl.constexpr
):  # fmt: skip
    """Merge the stretches; facts rows: number, mean, unbiased variance, 1/deviation, factor, shift."""
    column = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    inside = column < channels
    seen = tl.zeros((CHANNELS,), tl.float32)
    centre = tl.zeros((CHANNELS,), tl.float32)
    spread = tl.zeros((CHANNELS,), tl.float32)
    for split in range(splits):
        place = split * channels + column
        number = tl.load(count + place, mask=inside, other=0.0)
        middle = tl.load(mean + place, mask=inside, other=0.0)
        own = tl.load(m2 + place, mask=inside, other=0.0)
        total = seen + number
        gap = middle - centre
        share = number / tl.maximum(total, 1.0)
        spread += own + gap * gap * seen * share
        centre += gap * share
        seen = total
    number = tl.maximum(seen, 1.0)
    inverse = 1.0 / tl.sqrt(spread / number + eps)
    factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32) * inverse
    shift = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32) - centre * factor
    tl.store(facts + column, number, mask=inside)
    tl.store(facts + channels + column, centre, mask=inside)
    tl.store(facts + 2 * channels + column, spread / tl.maximum(number - 1.0, 1.0), mask=inside)
    tl.store(facts + 3 * channels + column, inverse, mask=inside)
    tl.store(facts + 4 * channels + column, factor, mask=inside)
    tl.store(facts + 5 * channels + column, shift, mask=inside)


@triton.jit
def _apply(x, y, factor, shift, rows, channels, RELU: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    """Y = x·factor + shift per channel, then ReLU if asked."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    there = (row < rows)[:, None] & (column < channels)[None, :]
    place = row[:, None].to(tl.int64) * channels + column[None, :]
    values = tl.load(x + place, mask=there, other=0.0).to(tl.float32)
    a = tl.load(factor + column, mask=column < channels, other=0.0)
    b = tl.load(shift + column, mask=column < channels, other=0.0)
    values = values * a[None, :] + b[None, :]
    if RELU:
        values = tl.maximum(values, 0.0)
    tl.store(y + place, values.to(y.dtype.element_ty), mask=there)


@triton.jit
def _slopes(
    x, dy, factor, shift, mean, inverse, first, second, rows, channels, per_split,
    RELU: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Σ dy and Σ dy·x̂ over a stretch; padded rows have dy = 0 already."""
    column = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    split = tl.program_id(1)
    inside = column < channels
    middle = tl.load(mean + column, mask=inside, other=0.0)
    scale = tl.load(inverse + column, mask=inside, other=0.0)
    a = tl.load(factor + column, mask=inside, other=0.0)
    b = tl.load(shift + column, mask=inside, other=0.0)
    plain = tl.zeros((CHANNELS,), tl.float32)
    along = tl.zeros((CHANNELS,), tl.float32)
    begin = split * per_split
    last = tl.minimum(begin + per_split, rows)
    for start in range(begin, last, ROWS):
        row = start + tl.arange(0, ROWS)
        there = (row < last)[:, None] & inside[None, :]
        place = row[:, None].to(tl.int64) * channels + column[None, :]
        values = tl.load(x + place, mask=there, other=0.0).to(tl.float32)
        up = tl.load(dy + place, mask=there, other=0.0).to(tl.float32)
        if RELU:
            up = tl.where(values * a[None, :] + b[None, :] > 0, up, 0.0)
        plain += tl.sum(up, 0)
        along += tl.sum(up * (values - middle[None, :]) * scale[None, :], 0)
    tl.store(first + split * channels + column, plain, mask=inside)
    tl.store(second + split * channels + column, along, mask=inside)


@triton.jit
def _backward(
    x, dy, dx, mask, factor, shift, mean, inverse, first, second, rows, channels, pixels, clients, per_client,
    RELU: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Dx = factor·(dy − mean dy − x̂·mean(dy·x̂)) for real rows, 0 for padding; first and second are those means."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = column < channels
    there = (row < rows)[:, None] & inside[None, :]
    place = row[:, None].to(tl.int64) * channels + column[None, :]
    owner = column // per_client
    real = tl.load(mask + (row // pixels)[:, None] * clients + owner[None, :], mask=there, other=0).to(tl.float32)
    values = tl.load(x + place, mask=there, other=0.0).to(tl.float32)
    up = tl.load(dy + place, mask=there, other=0.0).to(tl.float32)
    a = tl.load(factor + column, mask=inside, other=0.0)
    b = tl.load(shift + column, mask=inside, other=0.0)
    if RELU:
        up = tl.where(values * a[None, :] + b[None, :] > 0, up, 0.0)
    middle = tl.load(mean + column, mask=inside, other=0.0)
    scale = tl.load(inverse + column, mask=inside, other=0.0)
    plain = tl.load(first + column, mask=inside, other=0.0)
    along = tl.load(second + column, mask=inside, other=0.0)
    normal = (values - middle[None, :]) * scale[None, :]
    slope = a[None, :] * (up - plain[None, :] - normal * along[None, :])
    tl.store(dx + place, tl.where(real > 0, slope, 0.0).to(dx.dtype.element_ty), mask=there)


def _grids(rows: int, channels: int) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Grids of the reductions and of the element-wise kernels, and the rows of one stretch of a reduction."""
    per_split = _ROWS * triton.cdiv(triton.cdiv(rows, _SPLITS), _ROWS)
    blocks = triton.cdiv(channels, _CHANNELS)
    return (blocks, triton.cdiv(rows, per_split)), (triton.cdiv(rows, _ROWS), blocks), per_split


class MaskedNorm(torch.autograd.Function):
    """Batch normalisation of folded maps over the samples where `mask [batch, clients]` is set, with ReLU if asked.

    Gives the maps, and mean and unbiased variance of the batch per channel.
    """

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch, channels, height, width = maps.shape
        rows, clients = batch * height * width, mask.shape[1]
        reduce, each, per_split = _grids(rows, channels)
        sizes = (rows, channels, height * width, clients, channels // clients)
        parts = torch.empty(3, reduce[1], channels, device=maps.device, dtype=torch.float32)
        _moments[reduce](maps, mask, *parts, *sizes, per_split, ROWS=_ROWS, CHANNELS=_CHANNELS)
        facts = torch.empty(6, channels, device=maps.device, dtype=torch.float32)
        _finish_moments[(reduce[0],)](*parts, weight, bias, facts, channels, reduce[1], eps, CHANNELS=_CHANNELS)
        outputs = torch.empty_like(maps, memory_format=torch.channels_last)
        _apply[each](maps, outputs, facts[4], facts[5], rows, channels, RELU=relu, ROWS=_ROWS, CHANNELS=_CHANNELS)
        ctx.save_for_backward(maps, mask, facts)
        ctx.relu, ctx.dtype = relu, weight.dtype
        mean, var = facts[1], facts[2]
        ctx.mark_non_differentiable(mean, var)
        return outputs, mean, var

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor, None, Tensor, Tensor, None, None]:
        maps, mask, facts = ctx.saved_tensors
        count, mean, _, inverse, factor, shift = facts
        upstream = upstream.contiguous(memory_format=torch.channels_last)
        batch, channels, height, width = maps.shape
        rows, clients = batch * height * width, mask.shape[1]
        reduce, each, per_split = _grids(rows, channels)
        sums = torch.empty(2, reduce[1], channels, device=maps.device, dtype=torch.float32)
        _slopes[reduce](
            maps, upstream, factor, shift, mean, inverse, *sums, rows, channels, per_split,
            RELU=ctx.relu, ROWS=_ROWS, CHANNELS=_CHANNELS,
        )  # fmt: skip
        totals = sums.sum(1)
        means = totals / count
        slope = torch.empty_like(maps, memory_format=torch.channels_last)
        _backward[each](
            maps, upstream, slope, mask, factor, shift, mean, inverse, *means,
            rows, channels, height * width, clients, channels // clients,
            RELU=ctx.relu, ROWS=_ROWS, CHANNELS=_CHANNELS,
        )  # fmt: skip
        first, second = totals.to(ctx.dtype)
        return slope, None, second, first, None, None
