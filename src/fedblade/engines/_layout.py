"""Batches of many clients in one tensor: made on the CPU with few operations and moved at once."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedblade.core.plan import Batch

TickAndSlot = tuple[int, int]


def lay_out(
    batches: Sequence[Batch], positions: Sequence[TickAndSlot], shape: TickAndSlot, device: torch.device
) -> Batch:
    """One batch [ticks, slots, batch] with every batch at its position; the mask is 0 for padding and unused slots.

    Padding repeats a batch's first sample, whose values are as harmless as any. Unused slots repeat the first sample
    of the first batch.
    """
    sizes = np.array([len(batch.indices) for batch in batches])
    columns = np.arange(sizes.max())
    real = columns < sizes[:, None]
    ticks, slots = np.array(positions).T
    source = np.zeros((*shape, len(columns)), dtype=np.int64)
    source[ticks, slots] = (np.cumsum(sizes) - sizes)[:, None] + np.where(real, columns, 0)
    mask = np.zeros(source.shape, dtype=bool)
    mask[ticks, slots] = real
    order = torch.from_numpy(source)

    def gather(parts: Sequence[Tensor | None]) -> Tensor | None:
        tensors = [part for part in parts if part is not None]
        return torch.cat(tensors)[order].to(device) if tensors else None

    return Batch(
        torch.cat([batch.indices for batch in batches])[order].to(device),
        gather([batch.draws for batch in batches]),
        gather([batch.noise for batch in batches]),
        mask=torch.from_numpy(mask).to(device),
    )


def side_by_side(clients: Sequence[Sequence[Batch]], device: torch.device) -> tuple[Batch, ...]:
    """The batches [clients, batch] of every tick; clients must be ordered by their steps, most first.

    A tick is as wide as its widest batch, so that a short last batch of all clients is not padded.
    """
    if not clients[0]:
        return ()
    positions = [(tick, client) for client, batches in enumerate(clients) for tick in range(len(batches))]
    every_batch = [batch for batches in clients for batch in batches]
    grid = lay_out(every_batch, positions, (len(clients[0]), len(clients)), device)
    by_tick = tuple(
        _at_tick(grid, tick, [len(batches[tick].indices) for batches in clients if tick < len(batches)])
        for tick in range(len(clients[0]))
    )
    seconds = [[batch.then for batch in batches if batch.then is not None] for batches in clients]
    if not seconds[0]:
        return by_tick
    pairs = zip(by_tick, side_by_side(seconds, device), strict=True)
    return tuple(replace(batch, then=second) for batch, second in pairs)


def _at_tick(grid: Batch, tick: int, sizes: Sequence[int]) -> Batch:
    """Views of one tick of the grid: the clients that still train, and as many samples as their widest batch has."""
    clients, width = len(sizes), max(sizes)
    draws, noise = (None if part is None else part[tick, :clients, :width] for part in (grid.draws, grid.noise))
    padded = grid.mask is not None and min(sizes) < width
    mask = grid.mask[tick, :clients, :width] if padded and grid.mask is not None else None
    return Batch(grid.indices[tick, :clients, :width], draws, noise, None, mask)
