"""A group of clients as one: what they receive, with a client axis, and their batches side by side."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from fedblade.core.phase import Phase
from fedblade.core.plan import Batch, ClientTask
from fedblade.core.problem import BUFFERS, MOMENTUM, PERSONAL, Problem, Received, receive
from fedblade.core.state import ServerState
from fedblade.core.tree import State, Tree, tree_zeros
from fedblade.engines._layout import side_by_side


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


def in_step(tasks: Sequence[ClientTask]) -> bool:
    """Whether in every phase no client has more steps than the one before it."""
    return all(
        len(first.phases[i]) >= len(second.phases[i])
        for first, second in pairwise(tasks)
        for i in range(len(first.phases))
    )


# Tensors that are made in a caller's inference mode could not be trained with.
@torch.inference_mode(False)
def groups_of(tasks: Sequence[ClientTask], most: int) -> list[list[ClientTask]]:
    """Clients to train side by side: longest first, so that those of a group end at about the same time."""
    ordered = longest_first([task for task in tasks if task.num_steps])
    groups = [ordered[i : i + most] for i in range(0, len(ordered), most)]
    return [part for group in groups for part in ([group] if in_step(group) else [[task] for task in group])]


def receive_group(
    problem: Problem,
    server: ServerState,
    tasks: Sequence[ClientTask],
    own: Sequence[State | None],
    lr: float,
    phases: tuple[Phase, ...] | None = None,
) -> Received:
    """What the clients of a group receive, with a client axis; the batches are put side by side by `with_batches`.

    What no client has of its own is held once: its client axis is a view that repeats it.
    """
    newcomer = receive(problem, server, replace(tasks[0], phases=()), None, lr, phases)
    kept = [each or {} for each in own]
    counts = torch.stack([task.counts for task in tasks]).to(newcomer.task.counts.device)

    def rows(common: Tree, name: str) -> Tree:
        return with_client_axis(common, [each.get(name, {}) for each in kept])

    brought = any(MOMENTUM in each for each in kept)
    group = GroupTask(tuple(tasks), (), counts, tasks[0].round, tasks[0].seed)
    return replace(
        newcomer,
        task=group,  # type: ignore[arg-type]  # the loop reads of it what both kinds of task have
        anchor=rows(newcomer.anchor, PERSONAL),
        buffers=rows(newcomer.buffers, BUFFERS),
        client={
            name: rows({} if all(name in each for each in kept) else first, name)
            for name, first in newcomer.client.items()
        },
        momentum=rows(tree_zeros(newcomer.anchor), MOMENTUM) if brought else None,
    )


def with_batches(received: Received, tasks: Sequence[ClientTask]) -> Received:
    """The group with its batches side by side; the tasks must be ordered by their steps in every phase."""
    device = received.task.counts.device
    phases = tuple(side_by_side(phase, device) for phase in zip(*(task.phases for task in tasks), strict=True))
    return replace(received, task=replace(received.task, phases=phases))


def each_state(state: State, clients: int) -> list[State]:
    """The states of single clients, as views of those of a group."""
    apart = {name: each_tree(tree, clients) for name, tree in state.items()}
    return [{name: trees[k] for name, trees in apart.items()} for k in range(clients)]


def each_tree(tree: Tree, clients: int) -> list[Tree]:
    """The trees of single clients, as views of those of a group."""
    apart = {name: leaf.unbind() for name, leaf in tree.items()}
    return [{name: rows[k] for name, rows in apart.items()} for k in range(clients)]


def with_client_axis(common: Tree, own: Sequence[Tree]) -> Tree:
    """A client axis: what a client has of its own, the common tensor where it has none; a view if nobody has any."""
    names = dict.fromkeys(name for tree in (common, *own) for name in tree)
    return {
        name: torch.stack([tree[name] if name in tree else common[name] for tree in own])
        if any(name in tree for tree in own)
        else common[name].expand(len(own), *common[name].shape)
        for name in names
    }


def is_common(leaf: Tensor) -> bool:
    """Whether all clients of a group have the same tensor, of which there is one."""
    return leaf.dim() > 0 and len(leaf) > 1 and leaf.stride(0) == 0


def held_once(value: Any) -> tuple[Any, Any]:
    """Nested tensors for `vmap`, and their client axes: what all clients share goes in without one."""
    if isinstance(value, Tensor):
        return (value[0], None) if is_common(value) else (value, 0)
    parts = {name: held_once(part) for name, part in value.items()}
    return {name: part for name, (part, _) in parts.items()}, {name: axis for name, (_, axis) in parts.items()}


def first_rows(state: State, clients: int) -> State:
    """Views of the first so many clients of a state."""
    return {name: {key: leaf[:clients] for key, leaf in tree.items()} for name, tree in state.items()}
