"""Training in slots: clients take turns in a fixed number of slots, and captured steps are replayed.

`stacked.py` explains the words.
"""

from collections.abc import Sequence
from typing import Literal

import torch

from fedblade.core.clients import Clients, Trace
from fedblade.core.plan import Batch, ClientTask
from fedblade.core.problem import LocalModel, Problem, Received
from fedblade.core.tree import Tree
from fedblade.core.work import prepare_phase
from fedblade.engines._device_memory import shrink_to
from fedblade.engines._layout import lay_out
from fedblade.engines._schedule import Schedule, SlotUse, make_schedule, num_slots_for
from fedblade.engines._slot_making import make_slots, slots_in_memory
from fedblade.engines._slot_memory import Slots

MOST_SLOTS = 32
"""The largest number of clients that train side by side."""
CAPACITY = 512
"""Ticks that a captured plan has room for, and by which it grows."""


def can_replay(problem: Problem) -> bool:
    """Whether one captured step serves the whole run: one phase, one model, and no term that reads the round."""
    phases = problem.method.phases
    if len(phases) != 1 or phases[0].track is not None or phases[0].paired:
        return False
    work = prepare_phase(problem, phases[0], problem.start.params)
    return not any(term.by_round for term in (*work.terms, *work.first))


class SlotTrainer:
    """Trains cohorts in slots; the tensors and captures live as long as the run."""

    def __init__(self) -> None:
        self._most = MOST_SLOTS
        self._memory: Slots | None = None
        self._has_measured_memory = False

    def train(self, clients: Clients, received: Received, tasks: Sequence[ClientTask]) -> tuple[LocalModel, Trace]:
        """The models of a group after training, and what its steps logged; `tasks` are ordered most steps first.

        If the device's memory is too small for the slots, half of them are used from then on.
        """
        while True:
            try:
                return self._train(clients, received, tasks)
            except torch.cuda.OutOfMemoryError:
                if self._most == 1:
                    raise
                self._most = max(1, min(self._most, self._memory.num_slots if self._memory else self._most) // 2)
                self._memory = None
            shrink_to(self._most)

    def _train(self, clients: Clients, received: Received, tasks: Sequence[ClientTask]) -> tuple[LocalModel, Trace]:
        slots, schedule = self._prepare(clients, received, tasks)
        trained = _empty_model(slots.model, len(tasks), keep_momentum=clients.problem.settings.persist)
        starting, ending = _by_tick(schedule.uses, "start"), _by_tick(schedule.uses, "end")
        # Clients with most steps come first, so that the first clients are in the first slots.
        slots.load_first(len(starting.pop(0)), received)
        for tick, size in enumerate(schedule.running):
            for use in starting.get(tick, ()):
                if use.source is None:
                    slots.load(use.slot, received, use.client)
                else:
                    slots.move(use.source, use.slot)
            slots.replay(size)
            for use in ending.get(tick + 1, ()):
                if use.steps_after == tasks[use.client].num_steps:
                    slots.store(use.slot, trained, use.client)
        return trained, _trace(slots, schedule, tasks)

    def _prepare(self, clients: Clients, received: Received, tasks: Sequence[ClientTask]) -> tuple[Slots, Schedule]:
        """Slots with the round's plan in them, and the step captured for every number of slots that will run."""
        width = max(len(batch.indices) for task in tasks for batch in task.phases[0])
        if not self._has_measured_memory:
            self._most = min(self._most, slots_in_memory(clients, received, tasks[0], width))
            self._has_measured_memory = True
        num_slots = num_slots_for(len(tasks), self._most)
        slots = self._memory
        if slots is not None:
            num_slots, width = max(num_slots, slots.num_slots), max(width, slots.width)
        schedule = make_schedule([task.num_steps for task in tasks], num_slots)
        capacity = CAPACITY * -(-len(schedule.running) // CAPACITY)
        if slots is None or (num_slots, width) != (slots.num_slots, slots.width) or capacity > slots.capacity:
            # Released before new tensors are made.
            slots = self._memory = None
            like = tasks[0].phases[0][0]
            slots = self._memory = make_slots(clients, received, like, num_slots, width, capacity)
        for size in sorted(set(schedule.running), reverse=True):
            slots.capture(clients, size)
        slots.refresh(received, _plan(tasks, schedule, num_slots, received.counts.device))
        return slots, schedule


def _plan(tasks: Sequence[ClientTask], schedule: Schedule, num_slots: int, device: torch.device) -> Batch:
    """The batches [ticks, slots, batch] of a schedule; where a slot is not in use the mask is 0."""
    pairs = [
        (tasks[use.client].phases[0][use.steps_before + tick - use.start], (tick, use.slot))
        for use in schedule.uses
        for tick in range(use.start, use.end)
    ]
    batches, positions = zip(*pairs, strict=True)
    return lay_out(batches, positions, (len(schedule.running), num_slots), device)


def _by_tick(uses: Sequence[SlotUse], moment: Literal["start", "end"]) -> dict[int, list[SlotUse]]:
    """Uses of slots by the tick at which they start or end."""
    table: dict[int, list[SlotUse]] = {}
    for use in uses:
        table.setdefault(use.start if moment == "start" else use.end, []).append(use)
    return table


def _empty_model(like: LocalModel, clients: int, *, keep_momentum: bool) -> LocalModel:
    def empty(tree: Tree) -> Tree:
        return {name: leaf.new_empty(clients, *leaf.shape[1:]) for name, leaf in tree.items()}

    return LocalModel(empty(like.params), empty(like.buffers), empty(like.momentum) if keep_momentum else {})


def _trace(slots: Slots, schedule: Schedule, tasks: Sequence[ClientTask]) -> Trace:
    """What the steps of clients logged: one entry per step, with the clients that still trained in it."""
    logs = slots.logs[: len(schedule.running)].cpu()
    steps = [task.num_steps for task in tasks]
    by_step = logs.new_zeros(max(steps), len(slots.names), len(tasks))
    for use in schedule.uses:
        by_step[use.steps_before : use.steps_after, :, use.client] = logs[use.start : use.end, :, use.slot]
    training = [sum(number < of_client for of_client in steps) for number in range(max(steps))]
    return [
        {name: by_step[number, i, :clients] for i, name in enumerate(slots.names)}
        for number, clients in enumerate(training)
    ]
