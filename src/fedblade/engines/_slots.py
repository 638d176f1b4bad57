"""Slots: clients train in a fixed number of rows, captured steps are replayed, and finished rows are refilled."""

import warnings
from collections.abc import Sequence
from typing import Literal

import torch

from fedblade.core.gradient import prepare
from fedblade.core.local import Trace
from fedblade.core.plan import Batch, ClientTask
from fedblade.core.problem import LocalModel, Received
from fedblade.core.terms import GradientTerm, Term
from fedblade.core.tree import Tree
from fedblade.engines._layout import lay_out
from fedblade.engines._many_clients import ManyClients
from fedblade.engines._schedule import Schedule, Stay, schedule, size_for
from fedblade.engines._slot_making import make_slots, slots_in_memory
from fedblade.engines._slot_memory import Slots

MOST_SLOTS = 32
"""Clients that train side by side at most."""
CAPACITY = 512
"""Ticks that a captured plan has room for, and by which it grows."""


def can_replay(many: ManyClients) -> bool:
    """Whether one captured step serves the whole run: one phase, one model, and no term that asks for the round."""
    phases = many.problem.method.phases
    if len(phases) != 1 or phases[0].track is not None or phases[0].paired:
        return False
    work = prepare(many.problem, phases[0], many.problem.start.params)
    return not any(isinstance(term, Term | GradientTerm) and term.by_round for term in (*work.terms, *work.first))


class SlotTrainer:
    """Trains cohorts in slots; the tensors and captures live as long as the run."""

    def __init__(self, many: ManyClients) -> None:
        self._many = many
        self._most = MOST_SLOTS
        self._held: Slots | None = None
        self._measured = False

    def train(self, received: Received, tasks: Sequence[ClientTask]) -> tuple[LocalModel, Trace]:
        """The models of a group after training, and what its steps logged; `tasks` are ordered longest first.

        Where the memory of the device is too small for the slots there are, half of them are used from then on.
        """
        while True:
            try:
                return self._train(received, tasks)
            except torch.cuda.OutOfMemoryError:
                if self._most == 1:
                    raise
                self._most = max(1, min(self._most, self._held.slots if self._held else self._most) // 2)
                self._held = None
            # Outside the handler, whose traceback holds on to tensors.
            torch.cuda.empty_cache()
            warnings.warn(
                f"the GPU's memory was too small: from now on at most {self._most} of the clients train at a time. "
                f"Smaller batches (local.batch_size) or autocast=bf16 need less.",
                stacklevel=2,
            )

    def _train(self, received: Received, tasks: Sequence[ClientTask]) -> tuple[LocalModel, Trace]:
        held, seats = self._prepared(received, tasks)
        done = _empty_rows(held.row, len(tasks), keep_momentum=self._many.problem.settings.persist)
        starts, ends = _by_tick(seats.stays, "start"), _by_tick(seats.stays, "end")
        # Longest first, so that the first clients sit in the first slots.
        held.load_first(len(starts.pop(0)), received)
        for tick, size in enumerate(seats.running):
            for stay in starts.get(tick, ()):
                if stay.source is None:
                    held.load(stay.slot, received, stay.client)
                else:
                    held.move(stay.source, stay.slot)
            held.replay(size)
            for stay in ends.get(tick + 1, ()):
                if stay.last == tasks[stay.client].num_steps:
                    held.store(stay.slot, done, stay.client)
        return done, _trace(held, seats, tasks)

    def _prepared(self, received: Received, tasks: Sequence[ClientTask]) -> tuple[Slots, Schedule]:
        """Slots with the round's plan in them and every size that it needs captured."""
        width = max(len(batch.indices) for task in tasks for batch in task.phases[0])
        if not self._measured:
            self._most = min(self._most, slots_in_memory(self._many, received, tasks[0], width))
            self._measured = True
        slots = size_for(len(tasks), self._most)
        if self._held is not None:
            slots, width = max(slots, self._held.slots), max(width, self._held.width)
        seats = schedule([task.num_steps for task in tasks], slots)
        capacity = CAPACITY * -(-len(seats.running) // CAPACITY)
        held = self._held
        if held is None or (slots, width) != (held.slots, held.width) or capacity > held.capacity:
            self._held = None
            held = self._held = make_slots(self._many, received, tasks[0].phases[0][0], slots, width, capacity)
        for size in sorted(set(seats.running), reverse=True):
            held.capture(self._many, size)
        held.refresh(received, _plan(tasks, seats, slots, received.task.counts.device))
        return held, seats


def _plan(tasks: Sequence[ClientTask], seats: Schedule, slots: int, device: torch.device) -> Batch:
    """The batches [ticks, slots, batch] of a schedule; where a slot is idle the mask is 0."""
    pairs = [
        (tasks[stay.client].phases[0][stay.first + tick - stay.start], (tick, stay.slot))
        for stay in seats.stays
        for tick in range(stay.start, stay.end)
    ]
    batches, cells = zip(*pairs, strict=True)
    return lay_out(batches, cells, (len(seats.running), slots), device)


def _by_tick(stays: Sequence[Stay], moment: Literal["start", "end"]) -> dict[int, list[Stay]]:
    """Stays by the tick at which they begin or end."""
    table: dict[int, list[Stay]] = {}
    for stay in stays:
        table.setdefault(stay.start if moment == "start" else stay.end, []).append(stay)
    return table


def _empty_rows(row: LocalModel, clients: int, *, keep_momentum: bool) -> LocalModel:
    def empty(tree: Tree) -> Tree:
        return {name: leaf.new_empty(clients, *leaf.shape[1:]) for name, leaf in tree.items()}

    return LocalModel(empty(row.params), empty(row.buffers), empty(row.momentum) if keep_momentum else {})


def _trace(held: Slots, seats: Schedule, tasks: Sequence[ClientTask]) -> Trace:
    """What each client's steps logged, as entries whose first rows are the clients that still trained."""
    logs = held.logs[: len(seats.running)].cpu()
    steps = [task.num_steps for task in tasks]
    by_step = logs.new_zeros(max(steps), len(held.names), len(tasks))
    for stay in seats.stays:
        by_step[stay.first : stay.last, :, stay.client] = logs[stay.start : stay.end, :, stay.slot]
    training = [sum(number < each for each in steps) for number in range(max(steps))]
    return [
        {name: by_step[number, i, :clients] for i, name in enumerate(held.names)}
        for number, clients in enumerate(training)
    ]
