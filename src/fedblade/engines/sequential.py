"""One client after another: the definition that every other engine is compared with."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from torch import Tensor

from fedblade.core.client_diagnostics import DiagnosticRequest
from fedblade.core.one_client import OneClient
from fedblade.core.outcome import adapt_clients, collect_clients, train_clients
from fedblade.core.phase import Phase
from fedblade.core.plan import ClientTask
from fedblade.core.problem import Problem
from fedblade.core.registry import engines
from fedblade.core.samples import Samples
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.sums import DataPass, Sum
from fedblade.core.timeline import timed
from fedblade.core.tree import State, Tree
from fedblade.engines._loading import load_states, on_device
from fedblade.engines._measuring import measure_clients, measure_global
from fedblade.engines.base import ClientStates, MeasuredClient, OnClient, RoundOutcome


class SequentialEngine:
    """Trains the tasks in the order given, which is ascending client id."""

    name = "sequential"

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._client = OneClient(problem)

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
        outcome = RoundOutcome()
        for task in tasks:
            state = self._state(store, task, server.round)
            first = None if outcome.observed.first.trees else task.client
            result = train_clients(self._client, server, [task], [state], lr, diagnostics, first)
            with timed("sums"):
                if result.states[0]:
                    store.put(task.client, task.round, result.states[0])
                outcome = outcome + RoundOutcome.of(result)
            on_client(task.client)
        return outcome

    def collect(
        self, server: ServerState, tasks: Iterable[ClientTask], store: ClientStore, sums: tuple[Sum, ...]
    ) -> RoundOutcome:
        """Collect an exchange's sums without training."""
        outcome = RoundOutcome()
        for task in tasks:
            state = self._state(store, task, server.round)
            with timed("sums"):
                outcome = outcome + RoundOutcome.of(collect_clients(self._client, server, [task], [state], sums))
        return outcome

    def adapt(
        self,
        server: ServerState,
        tasks: Iterable[ClientTask],
        states: ClientStates,
        lr: float,
        phases: tuple[Phase, ...],
    ) -> Iterator[tuple[int, State]]:
        """Train each client's personal model on `phases` and yield (client, its state); nothing is aggregated."""
        for task in tasks:
            state = on_device(self._problem, states(task.client))
            yield task.client, adapt_clients(self._client, server, [task], [state], lr, phases)[0]

    def measure(
        self, server: ServerState, samples: Samples, indices: Tensor, passes: Sequence[DataPass]
    ) -> Mapping[str, Tree]:
        """Run passes over a data set with the global model."""
        return measure_global(self._client, server, samples, indices, passes)

    def measure_personal(
        self,
        server: ServerState,
        clients: Iterable[tuple[MeasuredClient, Tensor]],
        samples: Samples,
        passes: Sequence[DataPass],
    ) -> Iterator[tuple[int, Mapping[str, Tree]]]:
        """Run passes with each client's personal model and prediction; yields (client, totals)."""
        for measured in clients:
            yield from measure_clients(self._client, server, [measured], samples, passes)

    def _state(self, store: ClientStore, task: ClientTask, before_round: int) -> State | None:
        """A client's state on the training device."""
        return load_states(self._problem, store, [task], before_round)[0]


@engines.register()
def sequential(problem: Problem) -> SequentialEngine:
    """One client after another; short, obvious and the reference for every other engine."""
    return SequentialEngine(problem)
