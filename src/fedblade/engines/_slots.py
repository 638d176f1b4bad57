"""Slots: clients train in a fixed number of rows, one captured step is replayed, and finished rows are refilled."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedblade.core.local import Row, Trace, step
from fedblade.core.plan import Batch, ClientTask
from fedblade.core.problem import Received
from fedblade.core.slope import Work, prepare
from fedblade.core.terms import Term
from fedblade.core.tree import Tree, tree_map, tree_zeros
from fedblade.engines._group import GroupTask, stack_received
from fedblade.engines._many_clients import ManyClients
from fedblade.engines._schedule import Seat, by_tick, choose_slots, seat
from fedblade.engines._slot_plan import each_part, side_by_side, slot_plan

MOST_SLOTS = 16
"""Clients that train side by side at most; more would wait for the longest."""
CAPACITY = 512
"""Ticks that a captured plan has room for, and by which it grows."""
WARM_UPS = 2
"""Steps before a capture: libraries set themselves up in the first."""


def can_replay(many: ManyClients) -> bool:
    """Whether one captured step serves the whole run: one phase, one model, and no term that asks for the round."""
    phases = many.problem.method.phases
    if len(phases) != 1 or phases[0].track is not None or phases[0].paired:
        return False
    work = prepare(many.problem, phases[0], many.problem.start.params)
    return not any(isinstance(term, Term) and term.by_round for term in (*work.terms, *work.first))


@dataclass
class Slots:
    """Tensors of a fixed number of rows, and the step that was captured over them."""

    received: Received
    row: Row
    batch: Batch
    plan: Batch
    tick: Tensor
    logs: Tensor
    names: tuple[str, ...]
    replay: Callable[[], None]


class SlotTrainer:
    """Trains cohorts in slots; the tensors and captures live as long as the run."""

    def __init__(self, many: ManyClients) -> None:
        self._many = many
        self._slots: dict[tuple[int, ...], Slots] = {}

    def train(self, received: Sequence[Received]) -> tuple[Row, Trace]:
        """The models of all clients after training, stacked in the order given, and what their steps logged."""
        tasks = [each.task for each in received]
        steps = [task.num_steps for task in tasks]
        slots = choose_slots(steps, MOST_SLOTS)
        seats = seat(steps, slots)
        ticks = max(each.end for each in seats)
        held = self._prepared(received, tasks, seats, slots, ticks)
        done = _empty_rows(held.row, len(received))
        starts, ends = by_tick(seats, "start"), by_tick(seats, "end")
        for tick in range(ticks):
            for each in starts.get(tick, ()):
                _load(held, each.slot, received[each.client])
            held.replay()
            for each in ends.get(tick + 1, ()):
                _store(held.row, each.slot, done, each.client)
        return done, _trace(held, seats, len(received))

    def _prepared(
        self, received: Sequence[Received], tasks: Sequence[ClientTask], seats: Sequence[Seat], slots: int, ticks: int
    ) -> Slots:
        plan = slot_plan(tasks, seats, slots, ticks)
        capacity = CAPACITY * -(-ticks // CAPACITY)
        key = (slots, capacity, plan.indices.shape[2])
        known = self._slots.get(key)
        if known is None:
            known = self._slots[key] = self._capture(received, plan, slots, capacity)
        _refresh(known, received[0], plan, ticks)
        return known

    def _capture(self, received: Sequence[Received], plan: Batch, slots: int, capacity: int) -> Slots:
        first = received[0]
        task = GroupTask((), (), first.task.counts.expand(slots, -1).clone(), first.task.round, 0)
        together = stack_received([first] * slots, task)
        device = plan.indices.device
        together = replace(
            together,
            server={name: tree_map(torch.clone, tree) for name, tree in together.server.items()},
            fixed=tree_map(torch.clone, together.fixed),
            lr=torch.tensor(first.lr, device=device, dtype=together.anchor[next(iter(together.anchor))].dtype),
        )
        start = tree_map(torch.clone, together.anchor)
        row = Row(start, tree_map(torch.clone, together.buffers), tree_zeros(start))
        work = prepare(self._many.problem, self._many.problem.method.phases[0], row.params)
        held = Slots(
            received=together,
            row=row,
            batch=each_part(plan, lambda part: part[0].clone()),
            plan=each_part(plan, lambda part: part.new_zeros(capacity, *part.shape[1:])),
            tick=torch.zeros(1, dtype=torch.int64, device=device),
            logs=torch.zeros(0, device=device),
            names=(),
            replay=lambda: None,
        )
        return _captured(self._many, held, work, capacity, slots)


def _captured(many: ManyClients, held: Slots, work: Work, capacity: int, slots: int) -> Slots:
    """Run the step until it is warm, then capture it, or replay it step by step where there is nothing to capture."""

    def once() -> Mapping[str, Tensor]:
        _pick(held)
        entry = step(many.problem, many, held.received, held.row, work, held.batch)
        held.tick.add_(1)
        return entry

    cuda = held.tick.is_cuda
    stream = torch.cuda.Stream() if cuda else None  # type: ignore[no-untyped-call]
    if stream is not None:
        stream.wait_stream(torch.cuda.current_stream())
    with torch.enable_grad(), torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            entry = once()
    if stream is not None:
        torch.cuda.current_stream().wait_stream(stream)
    held.names = tuple(sorted(entry))
    held.logs = torch.zeros(capacity, len(held.names), slots, device=held.tick.device, dtype=torch.float64)

    def logged() -> None:
        place = held.tick.clone()
        entry = once()
        values = torch.stack([entry[name].detach().to(torch.float64).expand(slots) for name in held.names])
        held.logs.index_copy_(0, place, values[None])

    if not cuda:
        held.replay = logged
        return held
    graph = torch.cuda.CUDAGraph()
    with torch.enable_grad(), torch.cuda.graph(graph):
        logged()
    held.replay = graph.replay
    return held


def _pick(held: Slots) -> None:
    """Copy the batch of the current tick to where the step reads it."""
    for into, of in side_by_side(held.batch, held.plan):
        into.copy_(of.index_select(0, held.tick)[0])


def _refresh(held: Slots, first: Received, plan: Batch, ticks: int) -> None:
    """Bring the round's plan, rate and server state to where the captured step reads them."""
    held.tick.zero_()
    for into, of in side_by_side(held.plan, plan):
        into[:ticks].copy_(of)
    if isinstance(held.received.lr, Tensor):
        held.received.lr.fill_(first.lr)
    for name, tree in {"": first.fixed, **first.server}.items():
        here = held.received.server[name] if name else held.received.fixed
        for key, leaf in tree.items():
            here[key].copy_(leaf)


def _load(held: Slots, slot: int, received: Received) -> None:
    """Put a client into a slot: its model, its state, its counts, no momentum unless it brings some."""
    _copy_row(held.received.anchor, slot, received.anchor)
    _copy_row(held.received.buffers, slot, received.buffers)
    _copy_row(held.row.params, slot, received.anchor)
    _copy_row(held.row.buffers, slot, received.buffers)
    held.received.task.counts[slot].copy_(received.task.counts)
    torch._foreach_zero_([leaf[slot] for leaf in held.row.momentum.values()])
    if received.momentum is not None:
        _copy_row(held.row.momentum, slot, received.momentum)
    for name, tree in received.client.items():
        _copy_row(held.received.client[name], slot, tree)


def _copy_row(into: Tree, slot: int, of: Tree) -> None:
    if of:
        with torch.no_grad():
            torch._foreach_copy_([into[name][slot] for name in of], list(of.values()))


def _empty_rows(row: Row, clients: int) -> Row:
    params, buffers, momentum = (
        {name: leaf.new_empty(clients, *leaf.shape[1:]) for name, leaf in tree.items()}
        for tree in (row.params, row.buffers, row.momentum)
    )
    return Row(params, buffers, momentum)


def _store(row: Row, slot: int, done: Row, client: int) -> None:
    for into, of in ((done.params, row.params), (done.buffers, row.buffers), (done.momentum, row.momentum)):
        _copy_row(into, client, {name: leaf.detach()[slot] for name, leaf in of.items()})


def _trace(held: Slots, seats: Sequence[Seat], clients: int) -> Trace:
    """What each client's steps logged, as entries whose first rows are the clients that still trained."""
    logs = held.logs.cpu()
    by_client = {each.client: logs[each.start : each.end, :, each.slot] for each in seats}
    longest = max(len(own) for own in by_client.values())
    return [
        {
            name: torch.stack([by_client[c][number, i] for c in range(clients) if number < len(by_client[c])])
            for i, name in enumerate(held.names)
        }
        for number in range(longest)
    ]
