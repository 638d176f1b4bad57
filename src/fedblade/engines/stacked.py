"""A cohort as one computation: clients side by side, each layer once for all of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch

from fedblade.core.errors import Unsupported
from fedblade.core.local import Row, train
from fedblade.core.outcome import (
    LocalResult,
    StepLog,
    adapt_client,
    finish,
    summarise_group,
    train_client,
    tuned,
    with_fresh_optimiser,
)
from fedblade.core.phase import Phase
from fedblade.core.plan import ClientTask
from fedblade.core.problem import Problem, Received, receive
from fedblade.core.registry import engines
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.tree import State
from fedblade.engines._group import group_task, in_step, longest_first, row_of, stack_received
from fedblade.engines._group_passes import group_passes
from fedblade.engines._many_clients import ManyClients
from fedblade.engines._slots import SlotTrainer, can_replay
from fedblade.engines.base import OnClient, OwnStates, RoundOutcome
from fedblade.engines.layers._body import StackedBody
from fedblade.engines.sequential import SequentialEngine

ROWS = 32
"""Clients that are trained side by side at most."""


class StackedEngine(SequentialEngine):
    """Trains clients in groups, longest first; measures and exchanges as the sequential engine does."""

    name = "stacked"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._many = ManyClients(problem, StackedBody(problem.network.body, problem.network.stages))
        replays = problem.samples.labels.is_cuda and can_replay(self._many)
        self._slots = SlotTrainer(self._many) if replays else None

    def train(
        self, server: ServerState, tasks: Iterable[ClientTask], store: ClientStore, lr: float, on_client: OnClient
    ) -> RoundOutcome:
        """Train every task from the same server state, save client states and add up the sums."""
        chosen = list(tasks)
        results = self._idle(server, [task for task in chosen if not task.num_steps], store, lr, on_client)
        log = StepLog()
        for group in _groups(chosen):
            received = [
                receive(self._problem, server, task, self._own(store, task.client, server.round), lr) for task in group
            ]
            row, group_log = self._train_group(self._problem, received, None)
            log = log + group_log
            passes = group_passes(self._many, received, row, self._problem.method.sums)
            for place, mine in enumerate(received):
                results[mine.task.client] = finish(self._problem, mine, row_of(row, place), StepLog(), passes[place])
                on_client(mine.task.client)
        return _add_up(chosen, results, log, store)

    def adapt(
        self,
        server: ServerState,
        tasks: Iterable[ClientTask],
        own: OwnStates,
        lr: float,
        phases: tuple[Phase, ...],
    ) -> Iterator[tuple[int, State]]:
        """Train own models on `phases`, a group at a time, aggregate nothing, and give (client, its state)."""
        chosen = list(tasks)
        for task in (each for each in chosen if not each.num_steps):
            yield (
                task.client,
                adapt_client(self._problem, server, task, self._on_device(own(task.client)), lr, phases).state,
            )
        for group in _groups(chosen):
            states = [with_fresh_optimiser(self._problem, self._on_device(own(task.client))) for task in group]
            problem = states[0][0]
            received = [
                receive(problem, server, task, kept, lr, phases) for task, (_, kept) in zip(group, states, strict=True)
            ]
            row, _ = self._train_group(problem, received, phases)
            for place, mine in enumerate(received):
                yield mine.task.client, tuned(problem, mine, row_of(row, place), phases)

    def _idle(
        self, server: ServerState, tasks: Sequence[ClientTask], store: ClientStore, lr: float, on_client: OnClient
    ) -> dict[int, LocalResult]:
        """Clients without a step: they keep what they have and send nothing."""
        results: dict[int, LocalResult] = {}
        for task in tasks:
            own = self._own(store, task.client, server.round)
            results[task.client] = train_client(self._problem, server, task, own, lr)
            on_client(task.client)
        return results

    def _train_group(
        self, problem: Problem, received: Sequence[Received], phases: tuple[Phase, ...] | None
    ) -> tuple[Row, StepLog]:
        tasks = [each.task for each in received]
        with torch.inference_mode(False), torch.enable_grad():
            if self._slots is not None and phases is None:
                row, trace = self._slots.train(received)
            else:
                together = stack_received(received, group_task(tasks))
                row, trace = train(problem, together, phases, self._many)
        return row, summarise_group(trace, tasks)


def _groups(tasks: Sequence[ClientTask]) -> list[list[ClientTask]]:
    """Clients to train side by side: longest first, so that those of a group end at about the same time."""
    ordered = longest_first([task for task in tasks if task.num_steps])
    groups = [ordered[i : i + ROWS] for i in range(0, len(ordered), ROWS)]
    return [part for group in groups for part in ([group] if in_step(group) else [[task] for task in group])]


def _add_up(
    tasks: Sequence[ClientTask], results: Mapping[int, LocalResult], log: StepLog, store: ClientStore
) -> RoundOutcome:
    """Save states and add sums in ascending client id, whatever order the groups were trained in."""
    sums, sent = RoundOutcome().sums, 0
    for task in tasks:
        result = results[task.client]
        if result.state:
            store.put(task.client, task.round, result.state)
        sums = sums if result.sums is None else sums + result.sums
        sent += result.bytes_up
        log = log + result.log
    return RoundOutcome(sums, log, sent)


@engines.register()
def stacked(problem: Problem) -> StackedEngine:
    """A cohort as one computation: clients side by side, each layer once for all of them."""
    try:
        return StackedEngine(problem)
    except Unsupported as error:
        raise Unsupported(f"engine 'stacked' cannot train this model: {error}. Use engine=sequential.") from error
