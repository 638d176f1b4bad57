"""One client after another: the definition that every other engine is judged against."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from fedblade.core.outcome import LocalResult, collect_client, train_client
from fedblade.core.passes import run_passes
from fedblade.core.plan import ClientTask
from fedblade.core.problem import BUFFERS, PERSONAL, Problem
from fedblade.core.registry import engines
from fedblade.core.samples import Samples
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import State, Tree
from fedblade.engines.base import OnClient, RoundOutcome


class SequentialEngine:
    """Trains the tasks in the order given, which is ascending client id."""

    name = "sequential"

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def train(
        self, server: ServerState, tasks: Iterable[ClientTask], store: ClientStore, lr: float, on_client: OnClient
    ) -> RoundOutcome:
        """Train every task from the same server state, save client states and add up the sums."""
        outcome = RoundOutcome()
        for task in tasks:
            result = train_client(self._problem, server, task, self._own(store, task.client, server.round), lr)
            if result.state:
                store.put(task.client, task.round, result.state)
            outcome = _add(outcome, result)
            on_client(task.client)
        return outcome

    def collect(
        self, server: ServerState, tasks: Iterable[ClientTask], store: ClientStore, sums: tuple[Sum, ...]
    ) -> RoundOutcome:
        """Gather an exchange's sums without training."""
        outcome = RoundOutcome()
        for task in tasks:
            own = self._own(store, task.client, server.round)
            outcome = _add(outcome, collect_client(self._problem, server, task, own, sums))
        return outcome

    def measure(
        self, server: ServerState, samples: Samples, indices: Tensor, passes: Sequence[DataPass]
    ) -> Mapping[str, Tree]:
        """Run passes over a data set with the global model."""
        return self._passes(server, server.params, server.buffers, samples, indices, passes)

    def measure_own(
        self,
        server: ServerState,
        client: int,
        store: ClientStore,
        samples: Samples,
        indices: Tensor,
        passes: Sequence[DataPass],
    ) -> Mapping[str, Tree]:
        """Run passes with one client's model: the global one with the client's own parts in place."""
        own = self._own(store, client, server.round) or {}
        params, buffers = server.params | own.get(PERSONAL, {}), server.buffers | own.get(BUFFERS, {})
        return self._passes(server, params, buffers, samples, indices, passes)

    def _passes(
        self,
        server: ServerState,
        params: Tree,
        buffers: Tree,
        samples: Samples,
        indices: Tensor,
        passes: Sequence[DataPass],
    ) -> Mapping[str, Tree]:
        network = self._problem.network
        counts = torch.zeros(network.num_classes, dtype=torch.int64, device=indices.device)
        model = (params, buffers, server.fixed)
        return run_passes(passes, network, model, samples, indices, counts=counts, server=server.extra)

    def _own(self, store: ClientStore, client: int, before_round: int) -> State | None:
        """A client's state on the training device."""
        state = store.get(client, before_round)
        if state is None:
            return None
        device = self._problem.samples.labels.device
        return {name: {key: leaf.to(device) for key, leaf in tree.items()} for name, tree in state.items()}


def _add(outcome: RoundOutcome, result: LocalResult) -> RoundOutcome:
    sums = outcome.sums if result.sums is None else outcome.sums + result.sums
    return RoundOutcome(sums, outcome.log + result.log, outcome.bytes_up + result.bytes_up)


@engines.register()
def sequential(problem: Problem) -> SequentialEngine:
    """One client after another; short, obvious and the reference for every other engine."""
    return SequentialEngine(problem)
