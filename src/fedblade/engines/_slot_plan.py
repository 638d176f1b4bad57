"""The plan of a round in slots: the batches of every tick, as tensors."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedblade.core.plan import Batch, ClientTask
from fedblade.engines._schedule import Seat


def slot_plan(tasks: Sequence[ClientTask], seats: Sequence[Seat], slots: int, ticks: int) -> Batch:
    """The round's batches [ticks, slots, batch]; where a slot is idle the mask is 0."""
    batches = [batch for task in tasks for batch in task.phases[0]]
    shape = (ticks, slots, max(len(batch.indices) for batch in batches))
    like = batches[0]
    plan = Batch(
        like.indices.new_zeros(shape),
        None if like.draws is None else like.draws.new_zeros(*shape, like.draws.shape[1]),
        None if like.noise is None else like.noise.new_zeros(*shape, like.noise.shape[1]),
        mask=torch.zeros(shape, dtype=torch.bool, device=like.indices.device),
    )
    for each in seats:
        for number, batch in enumerate(tasks[each.client].phases[0]):
            place, size = (each.start + number, each.slot), len(batch.indices)
            plan.indices[place][size:] = batch.indices[0]
            real = replace(batch, mask=torch.ones_like(batch.indices, dtype=torch.bool))
            for into, of in side_by_side(plan, real):
                into[place][:size] = of
    return plan


def side_by_side(one: Batch, other: Batch) -> list[tuple[Tensor, Tensor]]:
    """The tensors that both batches have, in pairs."""
    parts = ([each.indices, each.mask, each.draws, each.noise] for each in (one, other))
    return [(a, b) for a, b in zip(*parts, strict=True) if a is not None and b is not None]


def each_part(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """A batch whose tensors are changed, each by itself."""
    draws, noise, mask = (None if part is None else change(part) for part in (batch.draws, batch.noise, batch.mask))
    return Batch(change(batch.indices), draws, noise, None, mask)
