"""What remains of a group's round: the sums of its clients, added up, and the states that they keep."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fedblade.core.end import client_numbers, end_view, float_bytes, held_classes, kept_state, updates
from fedblade.core.finite import refuse_non_finite_state, refuse_non_finite_sums
from fedblade.core.phase import Phase
from fedblade.core.plan import ClientTask
from fedblade.core.problem import LocalModel, Problem, Received
from fedblade.core.sums import Sum, Sums, contributions, payload_bytes
from fedblade.core.tree import State, Tree, tree_map
from fedblade.core.views import EndView
from fedblade.engines._group import split_state, vmap_inputs

CLIENT_FIELDS = ("params", "buffers", "anchor", "counts", "client", "passes")
"""The fields of an `EndView` that differ between clients, beside the numbers of `client_numbers`."""


@dataclass(frozen=True)
class GroupResult:
    """What the clients of a group send, added up, the states they keep as views, and the size of their uploads."""

    sums: Sums
    states: list[State]
    bytes_up: int


@dataclass(frozen=True)
class GroupEnd:
    """A group after its local work: what its clients received and the models they have now, with a client axis."""

    problem: Problem
    tasks: Sequence[ClientTask]
    received: Received
    model: LocalModel

    def view(self, passes: Mapping[str, Tree], phases: Sequence[Phase]) -> tuple[EndView, tuple[str, ...]]:
        """The clients after `phases`, and the names of the view's fields that have a client axis."""
        numbers = [client_numbers(self.problem, task, phases) for task in self.tasks]
        device = self.received.task.counts.device
        columns = {
            name: torch.tensor([of_client[name] for of_client in numbers], dtype=torch.float64, device=device)
            for name in numbers[0]
        }
        return end_view(self.problem, self.received, self.model, passes, columns), (*CLIENT_FIELDS, *columns)


def finish_group(
    problem: Problem, tasks: Sequence[ClientTask], received: Received, model: LocalModel, passes: Mapping[str, Tree]
) -> GroupResult:
    """What trained clients send and keep; `passes` and the model's tensors have a client axis."""
    method = problem.method
    view, fields = GroupEnd(problem, tasks, received, model).view(passes, method.phases)
    sent, updated = _map_clients(
        lambda client: (contributions(method.sums, client), updates(problem, client)), view, fields
    )
    state = kept_state(problem, received, model, updated, problem.shared)
    sums = Sums.over(method.sums, sent)
    if not _is_finite(*sums.trees.values(), *_maxima(method.sums, sent), *state.values()):
        _refuse_non_finite_clients(tasks, sent, state)
    return GroupResult(sums, split_state(state, len(tasks)), _upload_bytes(problem, tasks, method.sums, sums))


def collect_group(
    problem: Problem, tasks: Sequence[ClientTask], received: Received, sums: tuple[Sum, ...], passes: Mapping[str, Tree]
) -> tuple[Sums, int]:
    """What clients add to the sums of an exchange, without training, and the size of their uploads."""
    end = GroupEnd(problem, tasks, received, LocalModel(received.anchor, received.buffers, {}))
    made = add_up_group(end, sums, passes)
    return made, _upload_bytes(problem, tasks, sums, made)


def add_up_group(end: GroupEnd, sums: tuple[Sum, ...], passes: Mapping[str, Tree]) -> Sums:
    """What the clients of a group add to these sums; `passes` have a client axis."""
    view, fields = end.view(passes, end.problem.method.phases)
    sent = _map_clients(lambda client: contributions(sums, client), view, fields)
    made = Sums.over(sums, sent)
    if not _is_finite(*made.trees.values(), *_maxima(sums, sent)):
        _refuse_non_finite_clients(end.tasks, sent, {})
    return made


def tuned_group(
    problem: Problem, tasks: Sequence[ClientTask], received: Received, model: LocalModel, phases: Sequence[Phase]
) -> list[State]:
    """The states of clients after tuning, with all of their models, as views."""
    view, fields = GroupEnd(problem, tasks, received, model).view({}, phases)
    updated = _map_clients(lambda client: updates(problem, client), view, fields)
    state = kept_state(problem, received, model, updated, frozenset())
    if not _is_finite(*state.values()):
        _refuse_non_finite_clients(tasks, {}, state)
    return split_state(state, len(tasks))


@torch.no_grad()
def _map_clients(function: Callable[[EndView], Any], view: EndView, fields: Sequence[str]) -> Any:
    """Apply a function to the view of every client; `fields` are the names of what has a client axis."""

    def one(client: dict[str, Any]) -> Any:
        return function(replace(view, **client))

    inputs, axes = vmap_inputs({name: getattr(view, name) for name in fields})
    return torch.func.vmap(one, in_dims=(axes,))(inputs)


def _maxima(declared: Sequence[Sum], sent: Mapping[str, Tree]) -> list[Tree]:
    """Contributions to sums that keep the maximum, which may hide a number that is not finite."""
    return [sent[sum_.name] for sum_ in declared if sum_.reduce == "max"]


def _is_finite(*trees: Tree) -> bool:
    """Whether no number is NaN or infinite, seen from totals; a total that overflows gives False as well."""
    totals = [leaf.sum(dtype=torch.float64) for tree in trees for leaf in tree.values() if leaf.is_floating_point()]
    return not totals or bool(torch.stack(totals).isfinite().all())


def _refuse_non_finite_clients(tasks: Sequence[ClientTask], sent: Mapping[str, Tree], state: State) -> None:
    """Name the first client by id that sends or would keep a number which is not finite."""
    payloads, states = split_state(dict(sent), len(tasks)), split_state(state, len(tasks))
    for position, task in sorted(enumerate(tasks), key=lambda numbered: numbered[1].client):
        refuse_non_finite_sums(payloads[position], task.client, task.round)
        refuse_non_finite_state(states[position], task)


def _upload_bytes(problem: Problem, tasks: Sequence[ClientTask], declared: Sequence[Sum], sums: Sums) -> int:
    """Bytes of all uploads: clients that hold equally many classes send equally much."""
    width = float_bytes(problem)
    apart = [sum_.name for sum_ in declared if sum_.reduce == "each"]
    of_one_client = {name: tree_map(lambda leaf: leaf[:1], sums[name]) for name in apart}
    payload = Sums({**sums.trees, **of_one_client})
    num_clients = Counter(held_classes(task) for task in tasks)
    return sum(clients * payload_bytes(declared, payload, held, width) for held, clients in num_clients.items())
