"""The protocol of every engine, and the outcome of a round."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from fedblade.core.client_diagnostics import DiagnosticRequest, DiagnosticSums
from fedblade.core.cohort import Cohort
from fedblade.core.outcome import ClientsResult, StepLog
from fedblade.core.phase import Phase
from fedblade.core.samples import Samples
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.sums import DataPass, Sum, Sums
from fedblade.core.tree import State, Tree

OnClient = Callable[[int], None]
"""Called with a client's id when the client has finished, for progress."""

ClientStates = Callable[[int], State | None]
"""The state that a client keeps, by its id."""


@dataclass(frozen=True)
class RoundOutcome:
    """The cohort's sums, added up in ascending client id, the log of its steps, and what diagnostics saw of it.

    `contributors` are the clients whose replies were added, in ascending id; None if that is the whole cohort.
    """

    sums: Sums = field(default_factory=Sums)
    log: StepLog = field(default_factory=StepLog)
    bytes_up: int = 0
    observed: DiagnosticSums = field(default_factory=DiagnosticSums)
    contributors: tuple[int, ...] | None = None

    @staticmethod
    def of(result: ClientsResult) -> "RoundOutcome":
        """The outcome of a cohort of these clients."""
        return RoundOutcome(result.sums, result.log, result.bytes_up, result.observed)

    def __add__(self, other: "RoundOutcome") -> "RoundOutcome":
        """The outcome of both parts of a cohort; sums that keep clients apart have them in this order."""
        return RoundOutcome(
            self.sums + other.sums,
            self.log + other.log,
            self.bytes_up + other.bytes_up,
            self.observed + other.observed,
        )


@dataclass(frozen=True)
class MeasuredClient:
    """A client whose personal model is measured: its id, its state, and its training samples per class [classes]."""

    client: int
    state: State | None
    counts: Tensor


class Engine(Protocol):
    """Runs the clients of a round. The sequential engine defines what every other engine must compute."""

    name: str

    def train(
        self,
        server: ServerState,
        tasks: Cohort,
        store: ClientStore,
        lr: float,
        on_client: OnClient,
        diagnostics: DiagnosticRequest | None = None,
    ) -> RoundOutcome:
        """Train every task from the same server state, save client states and add up the sums.

        `diagnostics` is what diagnostics ask of the trained clients.
        """

    def collect(self, server: ServerState, tasks: Cohort, store: ClientStore, sums: tuple[Sum, ...]) -> RoundOutcome:
        """Collect an exchange's sums without training."""

    def measure(
        self, server: ServerState, samples: Samples, indices: Tensor, passes: Sequence[DataPass]
    ) -> Mapping[str, Tree]:
        """Run passes over a data set with the global model."""

    def adapt(
        self,
        server: ServerState,
        tasks: Cohort,
        states: ClientStates,
        lr: float,
        phases: tuple[Phase, ...],
    ) -> Iterator[tuple[int, State]]:
        """Train personal models on `phases` and yield (client, its state) in any order; nothing is aggregated."""

    def measure_personal(
        self,
        server: ServerState,
        clients: Iterable[tuple[MeasuredClient, Tensor]],
        samples: Samples,
        passes: Sequence[DataPass],
    ) -> Iterator[tuple[int, Mapping[str, Tree]]]:
        """Run passes with each client's personal model and prediction, over the samples at the client's indices.

        Yields (client, totals) in the order of `clients`, and takes a few dozen clients at a time from it.
        """
