"""A cohort as one computation: clients side by side, each layer once for all of them.

The modules of this engine use four words:

- *group*: clients that are computed side by side. Their tensors have a client axis in front, [clients, …].
- *slot*: a position on that axis. Where clients take turns, a slot is given to another client when one is done.
- *tick*: one local step of all slots.
- *chunk*: samples of one client that go through a pass together.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor

from fedblade.core.client_diagnostics import DiagnosticRequest, DiagnosticSums
from fedblade.core.errors import Unsupported
from fedblade.core.local import train
from fedblade.core.metric import Metric
from fedblade.core.outcome import StepLog, summarise_group, train_client, with_fresh_optimiser
from fedblade.core.passes import takes_batch_statistics
from fedblade.core.phase import Phase
from fedblade.core.plan import ClientTask
from fedblade.core.problem import LocalModel, Problem, Received
from fedblade.core.registry import engines
from fedblade.core.samples import Samples
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.sums import DataPass, Sum
from fedblade.core.timeline import timed
from fedblade.core.tree import State, Tree
from fedblade.engines._chunks import GroupData
from fedblade.engines._conformance_check import check_conformance
from fedblade.engines._device_memory import shrink_to
from fedblade.engines._group import groups_of, receive_group, split_state, with_batches
from fedblade.engines._group_finish import GroupResult, collect_group, finish_group, tuned_group
from fedblade.engines._group_passes import GroupPasses
from fedblade.engines._many_clients import ManyClients
from fedblade.engines._observer import Observer
from fedblade.engines._personal_models import personal_models
from fedblade.engines._slots import SlotTrainer, can_replay
from fedblade.engines.base import ClientStates, MeasuredClient, OnClient, RoundOutcome
from fedblade.engines.layers import StackedBody
from fedblade.engines.sequential import SequentialEngine

T = TypeVar("T")

GROUP_SIZE = 32
"""The largest number of clients that are trained side by side, and whose models are in memory at a time."""
GPU_BATCH = 1024
"""Samples per batch of a pass with the global model on a GPU: smaller batches would leave it idle."""


class StackedEngine(SequentialEngine):
    """Trains clients in groups, most steps first; measures the global model in larger batches."""

    name = "stacked"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._group_size = GROUP_SIZE
        self._many = ManyClients(problem, StackedBody(problem.network.body, problem.network.stages))
        self._passes = GroupPasses(self._many)
        self._features = self._many.features_of_one
        if problem.samples.labels.is_cuda and not takes_batch_statistics(problem.network):
            self._pass_batch = GPU_BATCH
        # A captured step cannot wait for the host to read inputs.
        replays = problem.samples.labels.is_cuda and problem.samples.reader is None and can_replay(self._many)
        self._slots = SlotTrainer(self._many) if replays else None

    def check_conformance(self, server: ServerState, task: ClientTask, metrics: Sequence[Metric]) -> None:
        """Raise `Unsupported` if the method cannot run side by side. The check uses samples of `task`."""
        try:
            check_conformance(self._passes, server, task, metrics)
        except Unsupported:
            raise
        except Exception as error:
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise Unsupported(f"the method fails with clients side by side: {reason}") from error

    def train(
        self,
        server: ServerState,
        tasks: Iterable[ClientTask],
        store: ClientStore,
        lr: float,
        on_client: OnClient,
        diagnostics: DiagnosticRequest | None = None,
    ) -> RoundOutcome:
        """Train every task from the same server state, save client states and add up the sums."""
        chosen = list(tasks)
        log = self._run_idle(server, [task for task in chosen if not task.num_steps], store, lr, on_client)
        outcome, clients = RoundOutcome(log=log), list[int]()
        observer = None if diagnostics is None else Observer(self._passes, diagnostics, chosen)
        for whole in groups_of(chosen, self._group_size):
            trained = self._in_memory(whole, lambda part: self._train_and_finish(server, part, store, lr, observer))
            for group, (result, log, observed) in trained:
                outcome = outcome + RoundOutcome(result.sums, log, result.bytes_up, observed)
                members = [task.client for task in group]
                kept = {client: state for client, state in zip(members, result.states, strict=True) if state}
                if kept:
                    with timed("sums"):
                        store.put_all(group[0].round, kept)
                for client in members:
                    on_client(client)
                clients += members
        ascending = sorted(range(len(clients)), key=clients.__getitem__)
        return replace(outcome, sums=outcome.sums.arranged(ascending))

    def collect(
        self, server: ServerState, tasks: Iterable[ClientTask], store: ClientStore, sums: tuple[Sum, ...]
    ) -> RoundOutcome:
        """Collect an exchange's sums without training, a group of clients at a time."""
        outcome = RoundOutcome()
        for group in _batched(tasks, GROUP_SIZE):
            states = [self._state(store, task.client, server.round) for task in group]
            with timed("sums"):
                received = receive_group(self._problem, server, group, states, 0.0)
                model = LocalModel(received.anchor, received.buffers, {})
                passes = self._passes.run_for_sums(group, received, model, sums)
                made, bytes_up = collect_group(self._problem, group, received, sums, passes)
                outcome = outcome + RoundOutcome(made, bytes_up=bytes_up)
        return outcome

    def measure_personal(
        self,
        server: ServerState,
        clients: Iterable[tuple[MeasuredClient, Tensor]],
        samples: Samples,
        passes: Sequence[DataPass],
    ) -> Iterator[tuple[int, Mapping[str, Tree]]]:
        """Run passes with the clients' personal models and predictions, a group at a time; yields (client, totals)."""
        for group in _batched(clients, GROUP_SIZE):
            measured = [client for client, _ in group]
            states = [self._on_device(client.state) for client in measured]
            models = personal_models(self._problem, server, measured, states)
            totals = self._passes.run(passes, models, GroupData(samples, [indices for _, indices in group]))
            yield from zip((client.client for client in measured), split_state(totals, len(group)), strict=True)

    def adapt(
        self,
        server: ServerState,
        tasks: Iterable[ClientTask],
        states: ClientStates,
        lr: float,
        phases: tuple[Phase, ...],
    ) -> Iterator[tuple[int, State]]:
        """Train personal models on `phases`, a group at a time; yield (client, its state). Nothing is aggregated."""
        chosen = list(tasks)
        idle = [task for task in chosen if not task.num_steps]
        yield from super().adapt(server, idle, states, lr, phases)
        for whole in groups_of(chosen, self._group_size):
            tuned = self._in_memory(whole, lambda part: self._tune(server, part, states, lr, phases))
            for group, tuned_states in tuned:
                yield from zip((task.client for task in group), tuned_states, strict=True)

    def _train_and_finish(
        self,
        server: ServerState,
        group: Sequence[ClientTask],
        store: ClientStore,
        lr: float,
        observer: Observer | None,
    ) -> tuple[GroupResult, StepLog, DiagnosticSums]:
        """What a group sends, keeps and shows to diagnostics; nothing is saved yet."""
        problem, sums = self._problem, self._problem.method.sums
        with timed("load"):
            states = [self._state(store, task.client, server.round) for task in group]
            received = receive_group(problem, server, group, states, lr)
        with timed("train"):
            model, log = self._train_group(problem, group, received, None)
        with timed("sums"):
            passes = self._passes.run_for_sums(group, received, model, sums)
            result = finish_group(problem, group, received, model, passes)
        with timed("evaluate"):
            return result, log, DiagnosticSums() if observer is None else observer.observe(group, received, model)

    def _tune(
        self,
        server: ServerState,
        group: Sequence[ClientTask],
        states: ClientStates,
        lr: float,
        phases: tuple[Phase, ...],
    ) -> list[State]:
        """Train the personal models of a group on `phases` and return the clients' states."""
        fresh = [with_fresh_optimiser(self._problem, self._on_device(states(task.client))) for task in group]
        problem = fresh[0][0]
        received = receive_group(problem, server, group, [kept for _, kept in fresh], lr, phases)
        model, _ = self._train_group(problem, group, received, phases)
        return tuned_group(problem, group, received, model, phases)

    def _in_memory(
        self, group: Sequence[ClientTask], work: Callable[[Sequence[ClientTask]], T]
    ) -> Iterator[tuple[Sequence[ClientTask], T]]:
        """The result of the work for a group. If the device's memory is too small, for its halves, from then on."""
        try:
            result = work(group)
        except torch.cuda.OutOfMemoryError:
            if len(group) == 1:
                raise
        else:
            yield group, result
            return
        half = self._group_size = -(-len(group) // 2)
        shrink_to(half)
        for part in (group[:half], group[half:]):
            yield from self._in_memory(part, work)

    def _run_idle(
        self, server: ServerState, tasks: Sequence[ClientTask], store: ClientStore, lr: float, on_client: OnClient
    ) -> StepLog:
        """Run clients without a step: they keep their state and send nothing."""
        log = StepLog()
        for task in tasks:
            state = self._state(store, task.client, server.round)
            result = train_client(self._problem, server, task, state, lr)
            if result.state:
                store.put(task.client, task.round, result.state)
            log = log + result.log
            on_client(task.client)
        return log

    def _train_group(
        self, problem: Problem, tasks: Sequence[ClientTask], received: Received, phases: tuple[Phase, ...] | None
    ) -> tuple[LocalModel, StepLog]:
        with torch.inference_mode(False), torch.enable_grad():
            if self._slots is not None and phases is None:
                model, trace = self._slots.train(received, tasks)
            else:
                model, trace = train(problem, with_batches(received, tasks), phases, self._many)
        return model, summarise_group(trace, tasks)


def _batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items; an item is taken only when its list is asked for."""
    remaining = iter(items)
    while taken := list(islice(remaining, size)):
        yield taken


@engines.register()
def stacked(problem: Problem) -> StackedEngine:
    """A cohort as one computation, clients side by side; `auto` takes it wherever it applies."""
    try:
        return StackedEngine(problem)
    except Unsupported as error:
        raise Unsupported(f"engine 'stacked' cannot train this model: {error}. Use engine=sequential.") from error
