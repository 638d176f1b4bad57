"""A cohort shared out over processes: every rank trains its share with an engine of its own, and sums are put together.

Rank 0 runs the rounds: it sends the state and who trains where, takes its own share, and gets the whole. The others
serve until they are dismissed. What is measured, and own models that are tuned, are rank 0's alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from torch import Tensor

from fedblade.core.client_diagnostics import DiagnosticRequest
from fedblade.core.cohort import Cohort
from fedblade.core.errors import Unsupported
from fedblade.core.phase import Phase
from fedblade.core.samples import Samples
from fedblade.core.state import ClientStore, ServerState, unflatten
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import State, Tree
from fedblade.engines.base import ClientStates, MeasuredClient, OnClient, RoundOutcome
from fedblade.engines.ranks._bytes import Json
from fedblade.engines.ranks._part import Part
from fedblade.engines.ranks._shares import owner
from fedblade.engines.ranks._sums import raise_described


class DistributedEngine:
    """Rank 0's engine: shares a cohort out, takes its own part and returns what all sent."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self.name = part.engine.name
        self.store = LeadStore(part)

    def train(
        self,
        server: ServerState,
        tasks: Cohort,
        store: ClientStore,  # noqa: ARG002 - every rank has its own
        lr: float,
        on_client: OnClient,
        diagnostics: DiagnosticRequest | None = None,
    ) -> RoundOutcome:
        """Train every task from the same server state, each on its rank, and put the sums together."""
        request: Json = {
            "kind": "train",
            "lr": lr,
            "keep_from": self.store.keep_from,
            "diagnostics": None,
            "first": None,
        }
        if diagnostics is not None:
            request["diagnostics"] = [[each.name for each in sums] for sums in (diagnostics.every, diagnostics.first)]
            request["first"] = _first_to_step(tasks) if diagnostics.first else None
        return self._asked(request, server, tasks, on_client)

    def collect(
        self,
        server: ServerState,
        tasks: Cohort,
        store: ClientStore,  # noqa: ARG002 - every rank has its own
        sums: tuple[Sum, ...],
    ) -> RoundOutcome:
        """Gather an exchange's sums without training."""
        known = [exchange.sums for exchange in self._part.problem.method.exchanges]
        if sums not in known:
            raise Unsupported("other ranks can only make the sums of the method's own exchanges. Declare them there.")
        return self._asked({"kind": "collect", "exchange": known.index(sums)}, server, tasks, lambda _: None)

    def measure(
        self, server: ServerState, samples: Samples, indices: Tensor, passes: Sequence[DataPass]
    ) -> Mapping[str, Tree]:
        """Run passes over a data set with the global model, here."""
        return self._part.engine.measure(server, samples, indices, passes)

    def adapt(
        self, server: ServerState, tasks: Cohort, own: ClientStates, lr: float, phases: tuple[Phase, ...]
    ) -> Iterator[tuple[int, State]]:
        """Train own models here."""
        return self._part.engine.adapt(server, tasks, own, lr, phases)

    def measure_personal(
        self,
        server: ServerState,
        clients: Iterable[tuple[MeasuredClient, Tensor]],
        samples: Samples,
        passes: Sequence[DataPass],
    ) -> Iterator[tuple[int, Mapping[str, Tree]]]:
        """Run passes with the clients' own models, here."""
        return self._part.engine.measure_personal(server, clients, samples, passes)

    def _asked(self, request: Json, server: ServerState, tasks: Cohort, on_client: OnClient) -> RoundOutcome:
        part = self._part
        shares = part.shares(tasks)
        request |= {"round": server.round, "cohort_round": tasks.round, "shares": shares}
        part.ranks.busy = True
        part.ranks.tell(request, _changing(server, part.start))
        outcome = part.do(request, server, on_client)
        part.ranks.busy = False
        for share in shares[1:]:
            for client in share:
                on_client(client)
        return outcome


class LeadStore:
    """Client states as rank 0 sees them: its own, and those that other ranks keep, fetched when asked for."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self.keep_from = 0

    def get(self, client: int, before_round: int) -> State | None:
        """The newest state a client saved in a round earlier than `before_round`, wherever it is."""
        part = self._part
        rank = owner(client, part.ranks.world) if part.owned else part.ranks.rank
        if rank == part.ranks.rank:
            return part.store.get(client, before_round)
        part.ranks.busy = True
        part.ranks.tell({"kind": "fetch", "client": client, "before_round": before_round, "rank": rank})
        answer = part.ranks.gather({})[rank]
        tree = {} if "error" in answer else part.ranks.receive(answer["leaves"], rank)
        part.ranks.busy = False
        if "error" in answer:
            raise_described(rank, answer["error"])
        return unflatten(tree) if answer["found"] else None

    def put(self, client: int, round_: int, state: State) -> None:
        """Save a state here."""
        self._part.store.put(client, round_, state)

    def put_all(self, round_: int, states: Mapping[int, State]) -> None:
        """Save states here."""
        self._part.store.put_all(round_, states)

    def forget_before(self, round_: int) -> None:
        """Promise it for all ranks, which hear of it with their next share."""
        self.keep_from = round_
        self._part.store.forget_before(round_)


def _changing(server: ServerState, start: ServerState) -> Tree:
    """What goes out in every round: all of the state but the tensors that every rank has made itself."""
    same = {f"fixed/{name}" for name in server.unmoved(start)}
    return {name: leaf for name, leaf in server.flat().items() if name not in same}


def _first_to_step(cohort: Cohort) -> int | None:
    """The lowest id of the clients that train; one task is planned, more only where clients have no step."""
    return next((task.client for task in cohort if task.num_steps), None)
