"""One client after another: the definition that every other engine is compared with."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from fedblade.core.client_diagnostics import DiagnosticRequest
from fedblade.core.outcome import LocalResult, adapt_client, collect_client, train_client
from fedblade.core.passes import PASS_BATCH, Features, PassData, PassModel, run_passes
from fedblade.core.phase import Phase
from fedblade.core.plan import ClientTask
from fedblade.core.problem import Problem, personal_model
from fedblade.core.registry import engines
from fedblade.core.samples import Samples
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.sums import DataPass, Sum, Sums
from fedblade.core.timeline import timed
from fedblade.core.tree import State, Tree
from fedblade.engines.base import ClientStates, MeasuredClient, OnClient, RoundOutcome


class SequentialEngine:
    """Trains the tasks in the order given, which is ascending client id."""

    name = "sequential"

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._pass_batch = PASS_BATCH
        self._features: Features = problem.network.eval_features

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
            state = self._state(store, task.client, server.round)
            first = not outcome.observed.first.trees
            result = train_client(self._problem, server, task, state, lr, diagnostics, first=first)
            with timed("sums"):
                if result.state:
                    store.put(task.client, task.round, result.state)
                outcome = outcome + _outcome(result)
            on_client(task.client)
        return outcome

    def collect(
        self, server: ServerState, tasks: Iterable[ClientTask], store: ClientStore, sums: tuple[Sum, ...]
    ) -> RoundOutcome:
        """Collect an exchange's sums without training."""
        outcome = RoundOutcome()
        for task in tasks:
            state = self._state(store, task.client, server.round)
            with timed("sums"):
                outcome = outcome + _outcome(collect_client(self._problem, server, task, state, sums))
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
            state = self._on_device(states(task.client))
            yield task.client, adapt_client(self._problem, server, task, state, lr, phases).state

    def measure(
        self, server: ServerState, samples: Samples, indices: Tensor, passes: Sequence[DataPass]
    ) -> Mapping[str, Tree]:
        """Run passes over a data set with the global model."""
        network = self._problem.network
        counts = torch.zeros(network.num_classes, dtype=torch.int64, device=indices.device)
        model = PassModel(server.params, server.buffers, server.fixed, counts, server.extra)
        data = PassData(samples, indices)
        return run_passes(passes, network, model, data, features=self._features, batch=self._pass_batch)

    def measure_personal(
        self,
        server: ServerState,
        clients: Iterable[tuple[MeasuredClient, Tensor]],
        samples: Samples,
        passes: Sequence[DataPass],
    ) -> Iterator[tuple[int, Mapping[str, Tree]]]:
        """Run passes with each client's personal model and prediction; yields (client, totals)."""
        problem, method = self._problem, self._problem.method
        for measured, indices in clients:
            kept = self._on_device(measured.state) or {}
            model = PassModel(
                *personal_model(problem, server, kept),
                counts=measured.counts,
                server=server.extra,
                client={n: kept[n] if n in kept else init(problem.start) for n, init in method.client_state.items()},
                logits=method.own.logits,
            )
            yield measured.client, run_passes(passes, problem.network, model, PassData(samples, indices))

    def _state(self, store: ClientStore, client: int, before_round: int) -> State | None:
        """A client's state on the training device."""
        with timed("load"):
            return self._on_device(store.get(client, before_round))

    def _on_device(self, state: State | None) -> State | None:
        if state is None:
            return None
        device = self._problem.samples.labels.device
        return {name: {key: leaf.to(device) for key, leaf in tree.items()} for name, tree in state.items()}


def _outcome(result: LocalResult) -> RoundOutcome:
    """The outcome of a cohort of this one client."""
    return RoundOutcome(result.sums or Sums(), result.log, result.bytes_up, result.observed)


@engines.register()
def sequential(problem: Problem) -> SequentialEngine:
    """One client after another; short, obvious and the reference for every other engine."""
    return SequentialEngine(problem)
