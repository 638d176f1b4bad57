"""Masked batch normalisation on a GPU as functions with gradients; the kernels are in `_norm_kernels.py`."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedblade.engines.layers import _norm_kernels as kernels
from fedblade.engines.layers._base import Running

ROWS, CHANNELS = 32, 64
"""Tile of a kernel that reads maps."""
PROGRAMS = 1056
"""Programs of a reduction: eight for each multiprocessor of a large GPU."""
FINISH = {"SPLITS": 32, "CHANNELS": 32}
"""Tile of a kernel that adds up the sums of stretches."""


def blocks_of(number: int, size: int) -> int:
    """How many blocks of a size are needed for a number of things."""
    return -(-number // size)


@dataclass(frozen=True)
class Shape:
    """Folded maps as rows of channels, which is how kernels see them."""

    rows: int
    channels: int
    pixels: int
    per_client: int

    @staticmethod
    def of(maps: Tensor, clients: int) -> "Shape":
        """The shape of maps [batch, clients·channels, height, width]."""
        batch, channels, height, width = maps.shape
        return Shape(batch * height * width, channels, height * width, channels // clients)

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """Rows, units of channels, pixels of a sample and channels of a client."""
        return self.rows, self.units, self.pixels, self.per_client

    @property
    def align(self) -> int:
        """A divisor of the number of channels that lets kernels load many numbers at once."""
        return 8 if self.channels % 8 == 0 else 1

    @property
    def units(self) -> int:
        """The channels in units of `align`."""
        return self.channels // self.align

    def blocks(self, size: int) -> int:
        """Tiles across the channels."""
        return blocks_of(self.channels, size)

    def stretches(self, rows: int, channels: int, programs: int) -> tuple[int, int]:
        """How many stretches of rows are reduced separately, and the rows of a stretch, a multiple of a tile's."""
        splits = max(1, min(programs // self.blocks(channels), blocks_of(self.rows, 4 * rows)))
        return splits, rows * blocks_of(blocks_of(self.rows, splits), rows)


def facts_of(maps: Tensor, sizes: Tensor, weight: Tensor, bias: Tensor, running: Running | None, eps: float) -> Tensor:
    """Count, mean, 1/deviation, factor and shift of every channel [5, channels]; moves the running statistics."""
    shape = Shape.of(maps, len(sizes))
    splits, per_split = shape.stretches(ROWS, CHANNELS, PROGRAMS)
    parts = torch.empty(2, splits, shape.channels, device=maps.device)
    kernels.moments[shape.blocks(CHANNELS), splits](
        maps, sizes, parts, *shape.numbers, per_split, ALIGN=shape.align, ROWS=ROWS, CHANNELS=CHANNELS
    )
    facts = torch.empty(5, shape.channels, device=maps.device)
    kept = (facts, facts, facts) if running is None else (running.mean, running.var, running.batches)
    kernels.finish_moments[(shape.blocks(FINISH["CHANNELS"]),)](
        maps, sizes, parts, weight, bias, facts, *kept, shape.channels, splits, shape.pixels, shape.per_client,
        eps, 0.0 if running is None else running.momentum, RUNNING=running is not None, **FINISH,
    )  # fmt: skip
    return facts


def known_facts(mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Facts with the factor and shift of running statistics; the other rows are not filled."""
    facts = torch.empty(5, len(mean), device=mean.device)
    kernels.known_facts[(blocks_of(len(mean), 256),)](weight, bias, mean, var, facts, len(mean), eps, CHANNELS=256)
    return facts


def applied(maps: Tensor, facts: Tensor, shape: Shape, *, relu: bool) -> Tensor:
    """Maps normalised by these facts, without a gradient."""
    outputs = torch.empty_like(maps, memory_format=torch.channels_last)
    kernels.apply[blocks_of(shape.rows, ROWS), shape.blocks(CHANNELS)](
        maps, outputs, facts, shape.rows, shape.units, RELU=relu, ALIGN=shape.align, ROWS=ROWS, CHANNELS=CHANNELS
    )
    return outputs


def finish_gradients(parts: Tensor, facts: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Means of dy and dy·x̂ [2, channels], and the gradients of weight and bias, from the sums of stretches."""
    _, splits, channels = parts.shape
    totals, dweight, dbias = torch.empty_like(facts[:2]), torch.empty_like(weight), torch.empty_like(bias)
    kernels.finish_gradients[(blocks_of(channels, FINISH["CHANNELS"]),)](
        parts, facts, totals, dbias, dweight, channels, splits, **FINISH
    )
    return totals, dweight, dbias


def through_norm(
    maps: Tensor, upstream: Tensor, into: Tensor, sizes: Tensor, facts: Tensor, totals: Tensor, *, relu: bool
) -> None:
    """Write the gradient of the maps before normalisation to `into`, which may be `upstream`."""
    shape = Shape.of(maps, len(sizes))
    kernels.backward[blocks_of(shape.rows, ROWS), shape.blocks(CHANNELS)](
        maps, upstream, into, sizes, facts, totals, *shape.numbers,
        RELU=relu, ALIGN=shape.align, ROWS=ROWS, CHANNELS=CHANNELS,
    )  # fmt: skip


class MaskedNorm(torch.autograd.Function):
    """Batch normalisation of folded maps over the first `sizes [clients]` samples of each client, and ReLU if asked."""

    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        weight: Tensor,
        bias: Tensor,
        sizes: Tensor,
        running: Running | None,
        eps: float,
        relu: bool,
    ) -> Tensor:
        facts = facts_of(maps, sizes, weight, bias, running, eps)
        outputs = applied(maps, facts, Shape.of(maps, len(sizes)), relu=relu)
        ctx.save_for_backward(maps, weight, bias, sizes, facts)
        ctx.relu = relu
        return outputs

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        maps, weight, bias, sizes, facts = ctx.saved_tensors
        upstream = upstream.contiguous(memory_format=torch.channels_last)
        shape = Shape.of(maps, len(sizes))
        splits, per_split = shape.stretches(ROWS, CHANNELS, PROGRAMS)
        parts = torch.empty(2, splits, shape.channels, device=maps.device)
        kernels.gradient_sums[shape.blocks(CHANNELS), splits](
            maps, upstream, sizes, facts, parts, *shape.numbers, per_split,
            RELU=ctx.relu, ALIGN=shape.align, ROWS=ROWS, CHANNELS=CHANNELS,
        )  # fmt: skip
        totals, dweight, dbias = finish_gradients(parts, facts, weight, bias)
        gradient = torch.empty_like(maps, memory_format=torch.channels_last)
        through_norm(maps, upstream, gradient, sizes, facts, totals, relu=ctx.relu)
        return gradient, dweight, dbias, None, None, None, None
