"""What remains of a group's round: the sums of its clients, added up, and the states that they keep."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fedblade.core.end import (
    client_numbers,
    end_view,
    float_bytes,
    held_classes,
    kept_state,
    updates,
)
from fedblade.core.finite import refuse_non_finite_state, refuse_non_finite_sums
from fedblade.core.phase import Phase
from fedblade.core.plan import ClientTask
from fedblade.core.problem import LocalModel, Problem, Received
from fedblade.core.sums import Sum, Sums, contributions, payload_bytes
from fedblade.core.tree import State, Tree, tree_map
from fedblade.core.views import EndView
from fedblade.engines._group import each_state, held_once

OWN = ("params", "buffers", "anchor", "counts", "client", "passes")
"""What a client has of its own in an `EndView`, beside its numbers."""


@dataclass(frozen=True)
class GroupResult:
    """What the clients of a group send, added up, the states they keep as views, and the size of their uploads."""

    sums: Sums
    states: list[State]
    bytes_up: int


def finish_group(
    problem: Problem, tasks: Sequence[ClientTask], received: Received, row: LocalModel, passes: Mapping[str, Tree]
) -> GroupResult:
    """What trained clients send and keep; `passes` and all of `row` have a client axis."""
    method = problem.method
    sent, state = _end(problem, tasks, received, row, passes, method.phases, method.sums, problem.shared)
    sums = Sums.over(method.sums, sent)
    if not _finite(*sums.trees.values(), *_of_maxima(method.sums, sent), *state.values()):
        _refuse_non_finite(tasks, sent, state)
    return GroupResult(sums, each_state(state, len(tasks)), _upload_bytes(problem, tasks, method.sums, sums))


def collect_group(
    problem: Problem, tasks: Sequence[ClientTask], received: Received, sums: tuple[Sum, ...], passes: Mapping[str, Tree]
) -> tuple[Sums, int]:
    """What clients add to the sums of an exchange, without training, and the size of their uploads."""
    made = added_up(problem, tasks, received, LocalModel(received.anchor, received.buffers, {}), sums, passes)
    return made, _upload_bytes(problem, tasks, sums, made)


def added_up(
    problem: Problem,
    tasks: Sequence[ClientTask],
    received: Received,
    row: LocalModel,
    sums: tuple[Sum, ...],
    passes: Mapping[str, Tree],
) -> Sums:
    """What clients with the models of `row` add to some sums; `passes` and all of `row` have a client axis."""
    view, own = _view(problem, tasks, received, row, passes, problem.method.phases)
    sent = _each(lambda seen: contributions(sums, seen), view, own)
    made = Sums.over(sums, sent)
    if not _finite(*made.trees.values(), *_of_maxima(sums, sent)):
        _refuse_non_finite(tasks, sent, {})
    return made


def tuned_group(
    problem: Problem, tasks: Sequence[ClientTask], received: Received, row: LocalModel, phases: Sequence[Phase]
) -> list[State]:
    """The states of clients with all of the models they have tuned, as views."""
    _, state = _end(problem, tasks, received, row, {}, phases, (), frozenset())
    if not _finite(*state.values()):
        _refuse_non_finite(tasks, {}, state)
    return each_state(state, len(tasks))


def _end(
    problem: Problem,
    tasks: Sequence[ClientTask],
    received: Received,
    row: LocalModel,
    passes: Mapping[str, Tree],
    phases: Sequence[Phase],
    sums: Sequence[Sum],
    shared: frozenset[str],
) -> tuple[dict[str, Tree], State]:
    """What each client adds to the sums, and what it keeps, both with a client axis."""
    view, own = _view(problem, tasks, received, row, passes, phases)
    sent, updated = _each(lambda seen: (contributions(sums, seen), updates(problem, seen)), view, own)
    return sent, kept_state(problem, received, row, updated, shared)


def _view(
    problem: Problem,
    tasks: Sequence[ClientTask],
    received: Received,
    row: LocalModel,
    passes: Mapping[str, Tree],
    phases: Sequence[Phase],
) -> tuple[EndView, tuple[str, ...]]:
    """The clients after their work, and the names of what has a client axis."""
    numbers = [client_numbers(problem, task, phases) for task in tasks]
    device = received.task.counts.device
    columns = {
        name: torch.tensor([each[name] for each in numbers], dtype=torch.float64, device=device) for name in numbers[0]
    }
    return end_view(problem, received, row, passes, columns), (*OWN, *columns)


@torch.no_grad()
def _each(of: Callable[[EndView], Any], view: EndView, own: Sequence[str]) -> Any:
    """Apply `of` to the view of every client."""

    def one(mine: dict[str, Any]) -> Any:
        return of(replace(view, **mine))

    held, axes = held_once({name: getattr(view, name) for name in own})
    return torch.func.vmap(one, in_dims=(axes,))(held)


def _of_maxima(declared: Sequence[Sum], sent: Mapping[str, Tree]) -> list[Tree]:
    """Contributions that a maximum may hide."""
    return [sent[each.name] for each in declared if each.reduce == "max"]


def _finite(*trees: Tree) -> bool:
    """Whether no number is NaN or infinite. A total that overflows says no as well: then the numbers are to be seen."""
    totals = [leaf.sum(dtype=torch.float64) for tree in trees for leaf in tree.values() if leaf.is_floating_point()]
    return not totals or bool(torch.stack(totals).isfinite().all())


def _refuse_non_finite(tasks: Sequence[ClientTask], sent: Mapping[str, Tree], state: State) -> None:
    """Name the first client by id that sends or would keep a number which is not finite."""
    payloads, states = each_state(dict(sent), len(tasks)), each_state(state, len(tasks))
    for place, task in sorted(enumerate(tasks), key=lambda each: each[1].client):
        refuse_non_finite_sums(payloads[place], task.client, task.round)
        refuse_non_finite_state(states[place], task)


def _upload_bytes(problem: Problem, tasks: Sequence[ClientTask], declared: Sequence[Sum], sums: Sums) -> int:
    """Bytes of all uploads: clients that hold equally many classes send equally much."""
    width = float_bytes(problem)
    first = {each.name: tree_map(lambda leaf: leaf[:1], sums[each.name]) for each in declared if each.reduce == "each"}
    one = Sums({**sums.trees, **first})
    sizes = Counter(held_classes(task) for task in tasks)
    return sum(clients * payload_bytes(declared, one, held, width) for held, clients in sizes.items())
