"""A cohort shared by processes: every rank trains its share with its own engine, and rank 0 gets the sum.

Rank 0 runs the rounds. It sends the server state and every rank's clients, and trains a share itself. The other ranks
serve rank 0 until the run ends. Measuring, and tuning personal models, is done by rank 0 alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from torch import Tensor

from fedblade.core.client_diagnostics import DiagnosticRequest
from fedblade.core.client_losses import collectable_sums
from fedblade.core.cohort import Cohort
from fedblade.core.errors import Unsupported
from fedblade.core.phase import Phase
from fedblade.core.samples import Samples
from fedblade.core.state import ClientStore, ServerState, unflatten
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import State, Tree
from fedblade.engines.base import ClientStates, MeasuredClient, OnClient, RoundOutcome
from fedblade.engines.ranks._bytes import Json
from fedblade.engines.ranks._errors import raise_described_error
from fedblade.engines.ranks._shares import owner
from fedblade.engines.ranks._worker import RankWorker


class DistributedEngine:
    """Rank 0's engine: shares a cohort out, trains a share and returns the outcome of all ranks."""

    def __init__(self, worker: RankWorker) -> None:
        self._worker = worker
        self.name = worker.engine.name
        self.store = AllRanksStore(worker)

    def train(
        self,
        server: ServerState,
        tasks: Cohort,
        store: ClientStore,  # noqa: ARG002 - every rank has its own store
        lr: float,
        on_client: OnClient,
        diagnostics: DiagnosticRequest | None = None,
    ) -> RoundOutcome:
        """Train every task from the same server state, each on its rank, and add up the outcomes."""
        request: Json = {
            "kind": "train",
            "lr": lr,
            "keep_from": self.store.keep_from,
            "diagnostics": None,
            "first": None,
        }
        if diagnostics is not None:
            request["diagnostics"] = [[sum_.name for sum_ in sums] for sums in (diagnostics.every, diagnostics.first)]
            request["first"] = _first_stepping_client(tasks) if diagnostics.first else None
        return self._request(request, server, tasks, on_client)

    def collect(
        self,
        server: ServerState,
        tasks: Cohort,
        store: ClientStore,  # noqa: ARG002 - every rank has its own store
        sums: tuple[Sum, ...],
    ) -> RoundOutcome:
        """Collect an exchange's sums without training."""
        known = collectable_sums(self._worker.problem.method)
        if sums not in known:
            raise Unsupported("other ranks can only compute sums of the method's exchanges. Add these sums to one.")
        request: Json = {"kind": "collect", "exchange": known.index(sums)}
        return self._request(request, server, tasks, lambda _: None)

    def measure(
        self, server: ServerState, samples: Samples, indices: Tensor, passes: Sequence[DataPass]
    ) -> Mapping[str, Tree]:
        """Run passes over a data set with the global model, on rank 0."""
        return self._worker.engine.measure(server, samples, indices, passes)

    def adapt(
        self, server: ServerState, tasks: Cohort, states: ClientStates, lr: float, phases: tuple[Phase, ...]
    ) -> Iterator[tuple[int, State]]:
        """Tune personal models, on rank 0."""
        return self._worker.engine.adapt(server, tasks, states, lr, phases)

    def measure_personal(
        self,
        server: ServerState,
        clients: Iterable[tuple[MeasuredClient, Tensor]],
        samples: Samples,
        passes: Sequence[DataPass],
    ) -> Iterator[tuple[int, Mapping[str, Tree]]]:
        """Run passes with the clients' personal models, on rank 0."""
        return self._worker.engine.measure_personal(server, clients, samples, passes)

    def _request(self, request: Json, server: ServerState, tasks: Cohort, on_client: OnClient) -> RoundOutcome:
        """Have all ranks carry out a request, each for its share of the clients."""
        worker = self._worker
        shares = worker.shares(tasks)
        request |= {"round": server.round, "cohort_round": tasks.round, "shares": shares}
        worker.ranks.busy = True
        worker.ranks.broadcast(request, _changed_state(server, worker.start))
        outcome = worker.work(request, server, on_client)
        worker.ranks.busy = False
        for share in shares[1:]:
            for client in share:
                on_client(client)
        return outcome


class AllRanksStore:
    """The clients' states as rank 0 sees them: its own, and those that other ranks keep, fetched when asked for."""

    def __init__(self, worker: RankWorker) -> None:
        self._worker = worker
        self.keep_from = 0

    def get(self, client: int, before_round: int) -> State | None:
        """The newest state that a client saved in a round earlier than `before_round`, from the rank that keeps it."""
        worker, ranks = self._worker, self._worker.ranks
        rank = owner(client, ranks.world) if worker.owned else ranks.rank
        if rank == ranks.rank:
            return worker.store.get(client, before_round)
        ranks.busy = True
        ranks.broadcast({"kind": "fetch", "client": client, "before_round": before_round, "rank": rank})
        answer = ranks.gather({})[rank]
        tree = {} if "error" in answer else ranks.receive(answer["leaves"], rank)
        ranks.busy = False
        if "error" in answer:
            raise_described_error(rank, answer["error"])
        return unflatten(tree) if answer["exists"] else None

    def put(self, client: int, round_: int, state: State) -> None:
        """Save a state on rank 0."""
        self._worker.store.put(client, round_, state)

    def put_all(self, round_: int, states: Mapping[int, State]) -> None:
        """Save states on rank 0."""
        self._worker.store.put_all(round_, states)

    def get_all(self, clients: Sequence[int], before_round: int) -> list[State | None]:
        """The newest states of many clients, one after another."""
        return [self.get(client, before_round) for client in clients]

    def flush(self) -> None:
        """Return when every state of rank 0 is saved; other ranks have saved theirs when they answer."""
        self._worker.store.flush()

    def contents(self, round_: int) -> dict[str, str]:
        """The files of all ranks that a checkpoint of this round needs, as of the last training."""
        return dict(self._worker.files.contents(round_))

    def check(self, round_: int, contents: Mapping[str, str]) -> None:
        """Have all ranks check their files, and go on with exactly these."""
        ranks = self._worker.ranks
        ranks.busy = True
        ranks.broadcast({"kind": "check", "round": round_, "contents": dict(contents)})
        self._worker.files.check(round_, contents)
        ranks.busy = False

    def add_files(self, contents: Mapping[str, str]) -> None:
        """Take in files that other processes have finished, on rank 0."""
        self._worker.store.add_files(contents)

    def forget_before(self, round_: int) -> None:
        """Allow all ranks to forget older states; the next request of rank 0 carries this to the other ranks."""
        self.keep_from = round_
        self._worker.store.forget_before(round_)


def _changed_state(server: ServerState, start: ServerState) -> Tree:
    """The server state without the fixed tensors that are as at the start, which every rank has made itself."""
    unchanged = {f"fixed/{name}" for name in server.unmoved(start)}
    return {name: leaf for name, leaf in server.flat().items() if name not in unchanged}


def _first_stepping_client(cohort: Cohort) -> int | None:
    """The lowest id of the clients that have a step to make; only tasks up to this client are planned."""
    return next((task.client for task in cohort if task.num_steps), None)
