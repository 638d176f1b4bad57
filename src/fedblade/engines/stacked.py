"""A cohort as one computation: clients side by side, each layer once for all of them."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor

from fedblade.core.client_diagnostics import DiagnosticRequest, DiagnosticSums
from fedblade.core.errors import Unsupported
from fedblade.core.local import train
from fedblade.core.metric import Metric
from fedblade.core.outcome import StepLog, adapt_client, summarise_group, train_client, with_fresh_optimiser
from fedblade.core.passes import takes_batch_statistics
from fedblade.core.phase import Phase
from fedblade.core.plan import ClientTask
from fedblade.core.problem import LocalModel, Problem, Received
from fedblade.core.registry import engines
from fedblade.core.samples import Samples
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.sums import DataPass, Sum, Sums
from fedblade.core.timeline import timed
from fedblade.core.tree import State, Tree
from fedblade.engines._group import each_state, groups_of, receive_group, with_batches
from fedblade.engines._group_finish import GroupResult, collect_group, finish_group, tuned_group
from fedblade.engines._group_passes import GroupPasses
from fedblade.engines._many_clients import ManyClients
from fedblade.engines._observer import Observer
from fedblade.engines._own_models import own_models
from fedblade.engines._portions import Data
from fedblade.engines._rehearsal import rehearse
from fedblade.engines._slots import SlotTrainer, can_replay
from fedblade.engines.base import Holder, OnClient, OwnStates, RoundOutcome
from fedblade.engines.layers._body import StackedBody
from fedblade.engines.sequential import SequentialEngine

T = TypeVar("T")

ROWS = 32
"""Clients that are trained side by side at most, and whose models are held at a time."""
GPU_BATCH = 1024
"""Samples per batch of a pass with the global model on a GPU, which small batches would not fill."""


class StackedEngine(SequentialEngine):
    """Trains clients in groups, longest first; measures the global model in larger batches."""

    name = "stacked"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._rows = ROWS
        self._many = ManyClients(problem, StackedBody(problem.network.body, problem.network.stages))
        self._passes = GroupPasses(self._many)
        self._features = self._many.of_one
        if problem.samples.labels.is_cuda and not takes_batch_statistics(problem.network):
            self._pass_batch = GPU_BATCH
        # A captured step cannot wait for the host to read inputs.
        replays = problem.samples.labels.is_cuda and problem.samples.reader is None and can_replay(self._many)
        self._slots = SlotTrainer(self._many) if replays else None

    def rehearse(self, server: ServerState, task: ClientTask, metrics: Sequence[Metric]) -> None:
        """Raise `Unsupported` if the method cannot run side by side; `task` lends its samples. Changes nothing."""
        try:
            rehearse(self._passes, server, task, metrics)
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
        log = self._idle(server, [task for task in chosen if not task.num_steps], store, lr, on_client)
        sums, sent, seen, clients = Sums(), 0, DiagnosticSums(), list[int]()
        observer = None if diagnostics is None else Observer(self._passes, diagnostics, chosen)
        for whole in groups_of(chosen, self._rows):
            trained = self._halved(whole, lambda some: self._trained(server, some, store, lr, observer))
            for group, (result, group_log, observed) in trained:
                sums, sent, log, seen = sums + result.sums, sent + result.bytes_up, log + group_log, seen + observed
                members = [task.client for task in group]
                kept = {client: state for client, state in zip(members, result.states, strict=True) if state}
                if kept:
                    with timed("sums"):
                        store.put_all(group[0].round, kept)
                for client in members:
                    on_client(client)
                clients += members
        ascending = sorted(range(len(clients)), key=clients.__getitem__)
        return RoundOutcome(sums.arranged(ascending), log, sent, seen)

    def collect(
        self, server: ServerState, tasks: Iterable[ClientTask], store: ClientStore, sums: tuple[Sum, ...]
    ) -> RoundOutcome:
        """Gather an exchange's sums without training, a group of clients at a time."""
        outcome = RoundOutcome()
        for group in _batched(tasks, ROWS):
            own = [self._own(store, task.client, server.round) for task in group]
            with timed("sums"):
                received = receive_group(self._problem, server, group, own, 0.0)
                passes = self._passes.of_sums(group, received, received.anchor, received.buffers, sums)
                made, sent = collect_group(self._problem, group, received, sums, passes)
                outcome = RoundOutcome(outcome.sums + made, outcome.log, outcome.bytes_up + sent)
        return outcome

    def measure_own(
        self,
        server: ServerState,
        clients: Iterable[tuple[Holder, Tensor]],
        samples: Samples,
        passes: Sequence[DataPass],
    ) -> Iterator[tuple[int, Mapping[str, Tree]]]:
        """Run passes with the clients' own models and predictions, a group at a time; gives (client, totals)."""
        for group in _batched(clients, ROWS):
            holders = [holder for holder, _ in group]
            models = own_models(self._problem, server, holders, [self._on_device(each.state) for each in holders])
            found = self._passes.run(passes, models, Data(samples, [indices for _, indices in group]))
            yield from zip((each.client for each in holders), each_state(found, len(group)), strict=True)

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
        for whole in groups_of(chosen, self._rows):
            for group, states in self._halved(whole, lambda some: self._tuned(server, some, own, lr, phases)):
                yield from zip((task.client for task in group), states, strict=True)

    def _trained(
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
            own = [self._own(store, task.client, server.round) for task in group]
            received = receive_group(problem, server, group, own, lr)
        with timed("train"):
            row, log = self._train_group(problem, group, received, None)
        with timed("sums"):
            passes = self._passes.of_sums(group, received, row.params, row.buffers, sums)
            result = finish_group(problem, group, received, row, passes)
        with timed("evaluate"):
            return result, log, DiagnosticSums() if observer is None else observer.of_group(group, received, row)

    def _tuned(
        self, server: ServerState, group: Sequence[ClientTask], own: OwnStates, lr: float, phases: tuple[Phase, ...]
    ) -> list[State]:
        """The states of a group whose own models were trained on `phases`."""
        states = [with_fresh_optimiser(self._problem, self._on_device(own(task.client))) for task in group]
        problem = states[0][0]
        received = receive_group(problem, server, group, [kept for _, kept in states], lr, phases)
        row, _ = self._train_group(problem, group, received, phases)
        return tuned_group(problem, group, received, row, phases)

    def _halved(
        self, group: Sequence[ClientTask], work: Callable[[Sequence[ClientTask]], T]
    ) -> Iterator[tuple[Sequence[ClientTask], T]]:
        """The work for a group; where the memory of the device is too small, for halves of it, from then on."""
        try:
            found = work(group)
        except torch.cuda.OutOfMemoryError:
            if len(group) == 1:
                raise
        else:
            yield group, found
            return
        # Outside the handler, whose traceback holds on to tensors.
        torch.cuda.empty_cache()
        half = self._rows = -(-len(group) // 2)
        warnings.warn(
            f"the GPU's memory was too small: from now on at most {half} of the clients train at a time. "
            f"Smaller batches (local.batch_size) or autocast=bf16 need less.",
            stacklevel=2,
        )
        for some in (group[:half], group[half:]):
            yield from self._halved(some, work)

    def _idle(
        self, server: ServerState, tasks: Sequence[ClientTask], store: ClientStore, lr: float, on_client: OnClient
    ) -> StepLog:
        """Clients without a step: they keep what they have and send nothing."""
        log = StepLog()
        for task in tasks:
            own = self._own(store, task.client, server.round)
            result = train_client(self._problem, server, task, own, lr)
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
                row, trace = self._slots.train(received, tasks)
            else:
                row, trace = train(problem, with_batches(received, tasks), phases, self._many)
        return row, summarise_group(trace, tasks)


def _batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items, so many at a time; no more of them are taken before they are asked for."""
    left = iter(items)
    while some := list(islice(left, size)):
        yield some


@engines.register()
def stacked(problem: Problem) -> StackedEngine:
    """A cohort as one computation, clients side by side; `auto` takes it wherever it applies."""
    try:
        return StackedEngine(problem)
    except Unsupported as error:
        raise Unsupported(f"engine 'stacked' cannot train this model: {error}. Use engine=sequential.") from error
