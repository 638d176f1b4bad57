"""A group of clients as one: what they received, stacked, and their batches side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from fedblade.core.local import Row
from fedblade.core.plan import Batch, ClientTask
from fedblade.core.problem import Received
from fedblade.core.tree import State, Tree, tree_zeros


@dataclass(frozen=True)
class GroupTask:
    """The tasks of a group, longest first: batches have a client axis, from which clients drop out at the end."""

    tasks: tuple[ClientTask, ...]
    phases: tuple[tuple[Batch, ...], ...]
    counts: Tensor
    round: int
    seed: int


def longest_first(tasks: Sequence[ClientTask]) -> list[ClientTask]:
    """Clients by the number of their steps, so that those which still train are always the first rows."""
    return sorted(tasks, key=lambda task: ([-len(phase) for phase in task.phases], task.client))


def group_task(tasks: Sequence[ClientTask]) -> GroupTask:
    """Put the batches of clients side by side; the tasks must be ordered by their steps in every phase."""
    phases = tuple(
        tuple(_together([batches[tick] for batches in phase if tick < len(batches)]) for tick in range(len(phase[0])))
        for phase in zip(*(task.phases for task in tasks), strict=True)
    )
    counts = torch.stack([task.counts for task in tasks])
    return GroupTask(tuple(tasks), phases, counts, tasks[0].round, tasks[0].seed)


def in_step(tasks: Sequence[ClientTask]) -> bool:
    """Whether in every phase no client has more steps than the one before it."""
    return all(
        len(first.phases[i]) >= len(second.phases[i])
        for first, second in pairwise(tasks)
        for i in range(len(first.phases))
    )


def stacked_batch(indices: Sequence[Tensor], width: int | None = None) -> tuple[Tensor, Tensor | None]:
    """Indices [clients, batch] and the mask of those that are not padding, None if none is.

    Padding repeats a client's first sample, whose values are as harmless as any.
    """
    sizes = [len(each) for each in indices]
    widest = max(sizes) if width is None else width
    if min(sizes) == widest:
        return torch.stack(list(indices)), None
    padded = torch.stack([torch.cat([each, each[:1].expand(widest - len(each))]) for each in indices])
    places = torch.arange(widest, device=padded.device)
    return padded, (places < torch.tensor(sizes, device=padded.device)[:, None])


def _together(batches: Sequence[Batch]) -> Batch:
    indices, mask = stacked_batch([batch.indices for batch in batches])
    seconds = [batch.then for batch in batches if batch.then is not None]
    return Batch(
        indices,
        _rows([batch.draws for batch in batches], indices.shape[1]),
        _rows([batch.noise for batch in batches], indices.shape[1]),
        _together(seconds) if seconds else None,
        mask,
    )


def _rows(parts: Sequence[Tensor | None], width: int) -> Tensor | None:
    """Draws [clients, batch, numbers], padded with a client's first."""
    found = [part for part in parts if part is not None]
    if not found:
        return None
    return torch.stack([torch.cat([each, each[:1].expand(width - len(each), -1)]) for each in found])


def stack_received(received: Sequence[Received], task: GroupTask) -> Received:
    """What the clients of a group hold, with a client axis; fixed tensors and the server's state are shared."""
    first = received[0]
    momentum = [tree_zeros(each.anchor) | (each.momentum or {}) for each in received]
    return Received(
        task=task,  # type: ignore[arg-type]  # the loop reads of it what both kinds of task have
        anchor=stack_trees([each.anchor for each in received]),
        buffers=stack_trees([each.buffers for each in received]),
        fixed=first.fixed,
        server=first.server,
        client={name: stack_trees([each.client[name] for each in received]) for name in first.client},
        momentum=stack_trees(momentum) if any(each.momentum is not None for each in received) else None,
        lr=first.lr,
    )


def stack_trees(trees: Sequence[Mapping[str, Tensor]]) -> Tree:
    """One tree whose leaves have a client axis."""
    return {name: torch.stack([tree[name] for tree in trees]) for name in trees[0]}


def first_rows(state: State, clients: int) -> State:
    """Views of the first so many clients of a state."""
    return {name: {key: leaf[:clients] for key, leaf in tree.items()} for name, tree in state.items()}


def row_of(row: Row, client: int) -> Row:
    """One client's tensors, as views."""
    params, buffers, momentum = (
        {name: leaf[client] for name, leaf in tree.items()} for tree in (row.params, row.buffers, row.momentum)
    )
    return Row(params, buffers, momentum, {name: row_of(each, client) for name, each in row.tracks.items()})
