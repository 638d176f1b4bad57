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

from fedblade.core.client_diagnostics import DiagnosticRequest
from fedblade.core.errors import Unsupported
from fedblade.core.metric import Metric
from fedblade.core.outcome import ClientsResult, adapt_clients, collect_clients, train_clients
from fedblade.core.phase import Phase
from fedblade.core.plan import ClientTask
from fedblade.core.problem import Problem
from fedblade.core.registry import engines
from fedblade.core.samples import Samples
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.sums import DataPass, Sum
from fedblade.core.timeline import timed
from fedblade.core.tree import State, Tree
from fedblade.engines._conformance_check import check_conformance
from fedblade.engines._device_memory import shrink_to
from fedblade.engines._group import groups_of
from fedblade.engines._loading import load_states, on_device
from fedblade.engines._many_clients import ManyClients, OneOfMany
from fedblade.engines._measuring import measure_clients, measure_global
from fedblade.engines._recordings import Recordings
from fedblade.engines._slots import SlotTrainer, can_replay
from fedblade.engines.base import ClientStates, MeasuredClient, OnClient, RoundOutcome
from fedblade.engines.layers import StackedBody

T = TypeVar("T")

GROUP_SIZE = 32
"""The largest number of clients that are trained side by side, and whose models are in memory at a time."""


class StackedEngine:
    """Trains clients in groups, most steps first; measures the global model in larger batches."""

    name = "stacked"

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._group_size = GROUP_SIZE
        on_gpu = problem.samples.labels.is_cuda
        # A captured or recorded step cannot wait for the host to read inputs.
        repeats = problem.samples.reader is None
        self._clients = ManyClients(
            problem,
            StackedBody(problem.network.body, problem.network.stages),
            slots=SlotTrainer() if repeats and on_gpu and can_replay(problem) else None,
            recordings=Recordings() if repeats and not on_gpu else None,
        )
        self._global_model = OneOfMany(problem, many=self._clients)

    def check_conformance(self, server: ServerState, task: ClientTask, metrics: Sequence[Metric]) -> None:
        """Raise `Unsupported` if the method cannot run side by side. The check uses samples of `task`."""
        try:
            check_conformance(self._clients, server, task, metrics)
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
        first = min((task.client for task in chosen if task.num_steps), default=None)

        def work(part: Sequence[ClientTask]) -> ClientsResult:
            states = load_states(self._problem, store, part, server.round)
            return train_clients(self._clients, server, part, states, lr, diagnostics, first)

        outcome, trained = RoundOutcome(), list[int]()
        for whole in _with_idle(chosen, groups_of(chosen, self._group_size)):
            for group, result in self._in_memory(whole, work):
                outcome = outcome + RoundOutcome.of(result)
                members = [task.client for task in group]
                kept = {client: state for client, state in zip(members, result.states, strict=True) if state}
                if kept:
                    with timed("sums"):
                        store.put_all(group[0].round, kept)
                for client in members:
                    on_client(client)
                trained += members if group[0].num_steps else []
        ascending = sorted(range(len(trained)), key=trained.__getitem__)
        return replace(outcome, sums=outcome.sums.arranged(ascending))

    def collect(
        self, server: ServerState, tasks: Iterable[ClientTask], store: ClientStore, sums: tuple[Sum, ...]
    ) -> RoundOutcome:
        """Collect an exchange's sums without training, a group of clients at a time."""
        outcome = RoundOutcome()
        for group in _batched(tasks, GROUP_SIZE):
            states = load_states(self._problem, store, group, server.round)
            with timed("sums"):
                outcome = outcome + RoundOutcome.of(collect_clients(self._clients, server, group, states, sums))
        return outcome

    def measure(
        self, server: ServerState, samples: Samples, indices: Tensor, passes: Sequence[DataPass]
    ) -> Mapping[str, Tree]:
        """Run passes over a data set with the global model."""
        return measure_global(self._global_model, server, samples, indices, passes)

    def measure_personal(
        self,
        server: ServerState,
        clients: Iterable[tuple[MeasuredClient, Tensor]],
        samples: Samples,
        passes: Sequence[DataPass],
    ) -> Iterator[tuple[int, Mapping[str, Tree]]]:
        """Run passes with the clients' personal models and predictions, a group at a time; yields (client, totals)."""
        for group in _batched(clients, GROUP_SIZE):
            yield from measure_clients(self._clients, server, group, samples, passes)

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

        def work(part: Sequence[ClientTask]) -> list[State]:
            kept = [on_device(self._problem, states(task.client)) for task in part]
            return adapt_clients(self._clients, server, part, kept, lr, phases)

        for whole in _with_idle(chosen, groups_of(chosen, self._group_size)):
            for group, adapted in self._in_memory(whole, work):
                yield from zip((task.client for task in group), adapted, strict=True)

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


def _with_idle(tasks: Sequence[ClientTask], groups: Sequence[Sequence[ClientTask]]) -> list[Sequence[ClientTask]]:
    """Clients without a step one by one, and then the groups of clients that train."""
    return [*([task] for task in tasks if not task.num_steps), *groups]


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
