"""Clients on other machines: requests go out, replies are checked and added as they come."""

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
from fedblade.engines.nodes._dispatch import Dispatch
from fedblade.engines.nodes._gathering import Gathering, Question
from fedblade.engines.nodes._models import NodeModels
from fedblade.engines.nodes._templates import Templates


class DeployedEngine:
    """Trains on the nodes that `dispatch` reaches. What needs no client, the server's `local` engine does.

    `folder` is where replies wait that come early, `test` the samples that the server measures on, None where nodes
    measure on their own.
    """

    name = "flower"

    def __init__(self, problem: Problem, local: Engine, dispatch: Dispatch, folder: Path, test: Samples | None) -> None:
        self._problem, self._local, self._dispatch, self._folder, self._test = problem, local, dispatch, folder, test
        self._templates = Templates(problem, local, dispatch.terms.max_norm)
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
        """Have every client of the cohort train where its data are, and add up what they send."""
        declared = self._problem.method.sums
        facts = {"lr": lr, "every": _names(diagnostics, "every"), "first": _names(diagnostics, "first")}
        template = self._templates.of_training(server, tasks, declared, diagnostics, lr)
        question = Question("train", facts, declared, diagnostics, template)
        return Gathering(self._dispatch, question, server, tasks, store).outcome(self._folder, on_client)

    def collect(self, server: ServerState, tasks: Cohort, store: ClientStore, sums: tuple[Sum, ...]) -> RoundOutcome:
        """Gather an exchange's sums."""
        facts: dict[str, Any] = {"sums": [each.name for each in sums]}
        question = Question("collect", facts, sums, None, self._templates.of_exchange(server, tasks, sums))
        return Gathering(self._dispatch, question, server, tasks, store).outcome(self._folder, lambda _: None)

    def measure(
        self, server: ServerState, samples: Samples, indices: Tensor, passes: Sequence[DataPass]
    ) -> Mapping[str, Tree]:
        """Run passes with the global model: on the server's samples, or on those of every node."""
        if self._test is not None:
            return self._local.measure(server, samples, indices, passes)
        return self._models.measure(server, passes)

    def adapt(
        self,
        server: ServerState,
        tasks: Cohort,
        own: ClientStates,
        lr: float,
        phases: tuple[Phase, ...],  # noqa: ARG002 - nodes know them by their place
    ) -> Iterator[tuple[int, State]]:
        """Have clients tune their own models and keep them; what comes back says only how often they were tuned."""
        return self._models.tune(server, tasks, own, lr)

    def measure_personal(
        self,
        server: ServerState,
        clients: Iterable[tuple[MeasuredClient, Tensor]],
        samples: Samples,
        passes: Sequence[DataPass],
    ) -> Iterator[tuple[int, Mapping[str, Tree]]]:
        """Run passes with the clients' own models on their nodes."""
        return self._models.measure_personal(server, clients, "test" if samples is self._test else "own", passes)


def _names(diagnostics: DiagnosticRequest | None, kind: str) -> list[str]:
    """The sums that diagnostics ask for, by name."""
    return [] if diagnostics is None else [each.name for each in getattr(diagnostics, kind)]
