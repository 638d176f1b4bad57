"""Batches of many clients in one tensor: made on the CPU with few operations and moved at once."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedblade.core.plan import Batch

Cell = tuple[int, int]


def lay_out(batches: Sequence[Batch], cells: Sequence[Cell], shape: Cell, device: torch.device) -> Batch:
    """A grid of batches [rows, columns, batch], each in its cell; the mask is 0 for padding and in empty cells.

    Padding repeats a batch's first sample, whose values are as harmless as any, and empty cells the first of all.
    """
    sizes = np.array([len(batch.indices) for batch in batches])
    places = np.arange(sizes.max())
    real = places < sizes[:, None]
    rows, columns = np.array(cells).T
    source = np.zeros((*shape, len(places)), dtype=np.int64)
    source[rows, columns] = (np.cumsum(sizes) - sizes)[:, None] + np.where(real, places, 0)
    mask = np.zeros(source.shape, dtype=bool)
    mask[rows, columns] = real
    at = torch.from_numpy(source)

    def gathered(parts: Sequence[Tensor | None]) -> Tensor | None:
        found = [part for part in parts if part is not None]
        return torch.cat(found)[at].to(device) if found else None

    return Batch(
        torch.cat([batch.indices for batch in batches])[at].to(device),
        gathered([batch.draws for batch in batches]),
        gathered([batch.noise for batch in batches]),
        mask=torch.from_numpy(mask).to(device),
    )


def side_by_side(clients: Sequence[Sequence[Batch]], device: torch.device) -> tuple[Batch, ...]:
    """The batches [clients, batch] of every tick; clients must be ordered by their steps, most first.

    A tick is as wide as its widest batch, so that a short last batch which all share is not padded.
    """
    if not clients[0]:
        return ()
    cells = [(tick, client) for client, own in enumerate(clients) for tick in range(len(own))]
    grid = lay_out([batch for own in clients for batch in own], cells, (len(clients[0]), len(clients)), device)
    ticks = tuple(
        _tick(grid, tick, [len(own[tick].indices) for own in clients if tick < len(own)])
        for tick in range(len(clients[0]))
    )
    seconds = [[batch.then for batch in own if batch.then is not None] for own in clients]
    if not seconds[0]:
        return ticks
    return tuple(replace(tick, then=then) for tick, then in zip(ticks, side_by_side(seconds, device), strict=True))


def _tick(grid: Batch, tick: int, sizes: Sequence[int]) -> Batch:
    """Views of one row of the grid, as far as its clients and their batches go."""
    clients, width = len(sizes), max(sizes)
    draws, noise = (None if part is None else part[tick, :clients, :width] for part in (grid.draws, grid.noise))
    padded = grid.mask is not None and min(sizes) < width
    mask = grid.mask[tick, :clients, :width] if padded and grid.mask is not None else None
    return Batch(grid.indices[tick, :clients, :width], draws, noise, None, mask)
