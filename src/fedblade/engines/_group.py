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
    """The task of a group, most steps first: what the local loop reads of a `ClientTask`, with a client axis.

    Clients that are done are the last on the axis, and later batches leave them out.
    """

    phases: tuple[tuple[Batch, ...], ...]
    counts: Tensor
    round: int
    seed: int


def longest_first(tasks: Sequence[ClientTask]) -> list[ClientTask]:
    """Clients by the number of their steps, so that the clients which still train are the first on the client axis."""
    return sorted(tasks, key=lambda task: ([-len(phase) for phase in task.phases], task.client))


def is_ordered_by_steps(tasks: Sequence[ClientTask]) -> bool:
    """Whether in every phase no client has more steps than the client before it."""
    return all(
        len(first.phases[i]) >= len(second.phases[i])
        for first, second in pairwise(tasks)
        for i in range(len(first.phases))
    )


# Tensors that are made in a caller's inference mode could not be trained with.
@torch.inference_mode(False)
def groups_of(tasks: Sequence[ClientTask], most: int) -> list[list[ClientTask]]:
    """Clients to train side by side, most steps first, so that the clients of a group end at about the same time.

    Clients that cannot be ordered by their steps in every phase train alone.
    """
    ordered = longest_first([task for task in tasks if task.num_steps])
    groups = [ordered[i : i + most] for i in range(0, len(ordered), most)]
    return [
        part for group in groups for part in ([group] if is_ordered_by_steps(group) else [[task] for task in group])
    ]


def receive_group(
    problem: Problem,
    server: ServerState,
    tasks: Sequence[ClientTask],
    states: Sequence[State | None],
    lr: float,
    phases: tuple[Phase, ...] | None = None,
) -> Received:
    """What the clients of a group receive, with a client axis; `with_batches` then puts their batches side by side.

    A tensor that is the same for all clients is stored once: its client axis is a view that repeats it.
    """
    newcomer = receive(problem, server, replace(tasks[0], phases=()), None, lr, phases)
    kept = [state or {} for state in states]
    counts = torch.stack([task.counts for task in tasks]).to(newcomer.task.counts.device)

    def stack(common: Tree, name: str) -> Tree:
        return with_client_axis(common, [state.get(name, {}) for state in kept])

    has_momentum = any(MOMENTUM in state for state in kept)
    group = GroupTask((), counts, tasks[0].round, tasks[0].seed)
    return replace(
        newcomer,
        task=group,  # type: ignore[arg-type]  # the loop reads only what both kinds of task have
        anchor=stack(newcomer.anchor, PERSONAL),
        buffers=stack(newcomer.buffers, BUFFERS),
        client={
            name: stack({} if all(name in state for state in kept) else first, name)
            for name, first in newcomer.client.items()
        },
        momentum=stack(tree_zeros(newcomer.anchor), MOMENTUM) if has_momentum else None,
    )


def with_batches(received: Received, tasks: Sequence[ClientTask]) -> Received:
    """The group with its batches side by side; the tasks must be ordered by their steps in every phase."""
    device = received.task.counts.device
    phases = tuple(side_by_side(phase, device) for phase in zip(*(task.phases for task in tasks), strict=True))
    return replace(received, task=replace(received.task, phases=phases))


def split_state(state: State, clients: int) -> list[State]:
    """The states of single clients, as views of the group's state."""
    by_name = {name: split_tree(tree, clients) for name, tree in state.items()}
    return [{name: trees[client] for name, trees in by_name.items()} for client in range(clients)]


def split_tree(tree: Tree, clients: int) -> list[Tree]:
    """The trees of single clients, as views of the group's tree."""
    by_name = {name: leaf.unbind() for name, leaf in tree.items()}
    return [{name: leaves[client] for name, leaves in by_name.items()} for client in range(clients)]


def with_client_axis(common: Tree, by_client: Sequence[Tree]) -> Tree:
    """The trees of clients with a client axis; a leaf that a client's tree lacks is the common one.

    Where no client's tree has a leaf, its client axis is a view that repeats the common leaf.
    """
    names = dict.fromkeys(name for tree in (common, *by_client) for name in tree)
    return {
        name: torch.stack([tree[name] if name in tree else common[name] for tree in by_client])
        if any(name in tree for tree in by_client)
        else repeated(common[name], len(by_client))
        for name in names
    }


def repeated(leaf: Tensor, clients: int) -> Tensor:
    """A client axis that is a view of one tensor."""
    return leaf.expand(clients, *leaf.shape)


def is_repeated(leaf: Tensor) -> bool:
    """Whether the client axis is a view that repeats one tensor."""
    return leaf.dim() > 0 and len(leaf) > 1 and leaf.stride(0) == 0


def vmap_inputs(value: Any) -> tuple[Any, Any]:
    """Nested tensors for `vmap`, and their client axes; a repeated tensor goes in once and without an axis."""
    if isinstance(value, Tensor):
        return (value[0], None) if is_repeated(value) else (value, 0)
    parts = {name: vmap_inputs(part) for name, part in value.items()}
    return {name: part for name, (part, _) in parts.items()}, {name: axis for name, (_, axis) in parts.items()}


def first_clients(tree: Tree, clients: int) -> Tree:
    """Views of the first clients of a tree."""
    return {name: leaf[:clients] for name, leaf in tree.items()}
