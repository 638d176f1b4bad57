"""Clients on other machines: the engine sends requests to nodes, checks their replies and adds the replies up."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from fedblade.core.client_diagnostics import DiagnosticRequest
from fedblade.core.cohort import Cohort
from fedblade.core.phase import Phase
from fedblade.core.problem import Problem
from fedblade.core.samples import Samples
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import State, Tree
from fedblade.engines.base import ClientStates, Engine, MeasuredClient, OnClient, RoundOutcome
from fedblade.engines.nodes._cohort_query import CohortQuery, Question
from fedblade.engines.nodes._dispatch import Dispatch
from fedblade.engines.nodes._node_models import NodeModels
from fedblade.engines.nodes._templates import Templates


class DeployedEngine:
    """Trains on the nodes that `dispatch` reaches.

    `name` is what summaries call the engine. The server's `local` engine does the work that needs no client. Replies
    that come early wait in `folder`. `test` are the samples on which the server measures; None if nodes measure on
    their test samples.
    """

    def __init__(
        self, name: str, problem: Problem, local: Engine, dispatch: Dispatch, folder: Path, test: Samples | None
    ) -> None:
        self.name = name
        self._problem, self._local, self._dispatch, self._folder, self._test = problem, local, dispatch, folder, test
        self._templates = Templates(problem, local, dispatch.rules)
        self._models = NodeModels(dispatch, self._templates)

    def train(
        self,
        server: ServerState,
        tasks: Cohort,
        store: ClientStore,
        lr: float,
        on_client: OnClient,
        diagnostics: DiagnosticRequest | None = None,
    ) -> RoundOutcome:
        """Have every client of the cohort train where its data are, and add up the replies."""
        declared = self._problem.method.sums
        facts = {"lr": lr, "every": _sum_names(diagnostics, "every"), "first": _sum_names(diagnostics, "first")}
        template = self._templates.of_training(server, tasks, declared, diagnostics, lr)
        question = Question("train", facts, declared, diagnostics, template)
        return CohortQuery(self._dispatch, question, server, tasks, store).outcome(self._folder, on_client)

    def collect(self, server: ServerState, tasks: Cohort, store: ClientStore, sums: tuple[Sum, ...]) -> RoundOutcome:
        """Gather an exchange's sums."""
        facts: dict[str, Any] = {"sums": [sum_.name for sum_ in sums]}
        question = Question("collect", facts, sums, None, self._templates.of_exchange(server, tasks, sums))
        return CohortQuery(self._dispatch, question, server, tasks, store).outcome(self._folder, lambda _: None)

    def measure(
        self, server: ServerState, samples: Samples, indices: Tensor, passes: Sequence[DataPass]
    ) -> Mapping[str, Tree]:
        """Run passes with the global model: on the server's samples, or on the test samples of every node."""
        if self._test is not None:
            return self._local.measure(server, samples, indices, passes)
        return self._models.measure(server, passes)

    def adapt(
        self,
        server: ServerState,
        tasks: Cohort,
        states: ClientStates,
        lr: float,
        phases: tuple[Phase, ...],  # noqa: ARG002 - nodes derive the phases from the configuration
    ) -> Iterator[tuple[int, State]]:
        """Have clients tune their personal models and keep them; yields the server's new note on each client."""
        return self._models.tune(server, tasks, states, lr)

    def measure_personal(
        self,
        server: ServerState,
        clients: Iterable[tuple[MeasuredClient, Tensor]],
        samples: Samples,
        passes: Sequence[DataPass],
    ) -> Iterator[tuple[int, Mapping[str, Tree]]]:
        """Run passes with the clients' personal models on their nodes."""
        return self._models.measure_personal(server, clients, "test" if samples is self._test else "own", passes)


def _sum_names(diagnostics: DiagnosticRequest | None, kind: str) -> list[str]:
    """The names of the sums that diagnostics ask for."""
    return [] if diagnostics is None else [sum_.name for sum_ in getattr(diagnostics, kind)]
