"""A rank's work in a run: its share of the clients, with its own engine and store."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from fedblade.core.client_diagnostics import DiagnosticRequest
from fedblade.core.client_losses import collectable_sums
from fedblade.core.cohort import Cohort
from fedblade.core.plan import ClientTask, Planner
from fedblade.core.problem import Problem
from fedblade.core.samples import Samples
from fedblade.core.state import ClientStore, ServerState, flatten, unflatten
from fedblade.core.sums import Sum
from fedblade.core.tree import Tree
from fedblade.engines.base import Engine, OnClient, RoundOutcome
from fedblade.engines.ranks._bytes import Json, leaves_of
from fedblade.engines.ranks._errors import describe_error
from fedblade.engines.ranks._files import FilesOfRanks
from fedblade.engines.ranks._outcomes import add_by_client, add_over_ranks
from fedblade.engines.ranks._ranks import Ranks
from fedblade.engines.ranks._shares import Shares, estimated_costs, owned_shares, share_out

Order = Literal["any", "fixed"]


@dataclass(frozen=True)
class _StepCountingCohort(Cohort):
    """A cohort that remembers which of its clients had a step to make."""

    stepping: list[int] = field(default_factory=list)

    def __iter__(self) -> Iterator[ClientTask]:
        for task in super().__iter__():
            if task.num_steps:
                self.stepping.append(task.client)
            yield task


@dataclass(frozen=True)
class _Job:
    """A request of rank 0, as one rank carries it out for its clients."""

    request: Json
    server: ServerState
    cohort: _StepCountingCohort
    declared: tuple[Sum, ...]
    diagnostics: DiagnosticRequest | None
    on_client: OnClient


@dataclass(frozen=True)
class RankWorker:
    """What a rank needs to train its share of a cohort; everything but the store is the same on all ranks.

    `store` keeps the states of the clients that this rank trains. With `owned` a rank always trains the same clients.
    `diagnostic_sums` are the sums that diagnostics may ask for, by name; `samples` at `indices` are measured for them.
    """

    ranks: Ranks
    engine: Engine
    problem: Problem
    planner: Planner
    start: ServerState
    store: ClientStore
    diagnostic_sums: Mapping[str, Sum]
    samples: Samples
    indices: Tensor
    order: Order = "any"
    owned: bool = False

    @cached_property
    def files(self) -> FilesOfRanks:
        """The files of all ranks' stores."""
        return FilesOfRanks(self.ranks, self.store, owned=self.owned)

    def shares(self, cohort: Cohort) -> Shares:
        """The clients of every rank."""
        if self.owned:
            return owned_shares(cohort.clients, self.ranks.world)
        return share_out(estimated_costs(cohort), self.ranks.world)

    def work(self, request: Json, server: ServerState, on_client: OnClient = lambda _: None) -> RoundOutcome:
        """Do this rank's share of a request. Rank 0 gets the outcome of all ranks, the others an empty one."""
        shares: Shares = request["shares"]
        cohort = _StepCountingCohort(self.planner, request["cohort_round"], tuple(shares[self.ranks.rank]))
        job = _Job(request, server, cohort, self._declared(request), self._diagnostics(request), on_client)
        outcome = self._add_by_client(job) if self.order == "fixed" else self._add_over_ranks(job)
        if request["kind"] == "train":
            self.files.exchange(request["round"])
        return outcome

    @property
    def _device(self) -> torch.device:
        """Where outcomes are added up."""
        return self.problem.samples.labels.device

    def _add_over_ranks(self, job: _Job) -> RoundOutcome:
        try:
            outcome: RoundOutcome | Exception = self._outcomes(job, [job.cohort])[0]
        except Exception as error:
            outcome = error
        clients = job.cohort.clients if job.request["kind"] == "collect" else job.cohort.stepping
        return add_over_ranks(self.ranks, outcome, clients, job.declared, job.diagnostics, self._device)

    def _add_by_client(self, job: _Job) -> RoundOutcome:
        try:
            clients = job.cohort.clients
            single = self._outcomes(job, (job.cohort.only([client]) for client in clients))
            outcomes: dict[int, RoundOutcome] | Exception = dict(zip(clients, single, strict=True))
        except Exception as error:
            outcomes = error
        return add_by_client(self.ranks, outcomes, job.request["shares"], job.declared, job.diagnostics, self._device)

    def _outcomes(self, job: _Job, cohorts: Iterable[Cohort]) -> list[RoundOutcome]:
        """The outcome of every cohort of clients of this rank; their states are saved."""
        outcomes = [self._outcome(job, cohort) for cohort in cohorts]
        if job.request["kind"] == "train":
            # Another rank may train the client in the next round.
            self.store.flush()
        return outcomes

    def _outcome(self, job: _Job, cohort: Cohort) -> RoundOutcome:
        request = job.request
        if not cohort.clients:
            return RoundOutcome()
        if request["kind"] == "collect":
            return self.engine.collect(job.server, cohort, self.store, job.declared)
        self.store.forget_before(request["keep_from"])
        diagnostics = job.diagnostics
        if diagnostics is not None and request["first"] not in cohort.clients:
            diagnostics = replace(diagnostics, first=())
        return self.engine.train(job.server, cohort, self.store, request["lr"], job.on_client, diagnostics)

    def _declared(self, request: Json) -> tuple[Sum, ...]:
        method = self.problem.method
        return method.sums if request["kind"] == "train" else collectable_sums(method)[request["exchange"]]

    def _diagnostics(self, request: Json) -> DiagnosticRequest | None:
        if request.get("diagnostics") is None:
            return None
        every, first = (tuple(self.diagnostic_sums[name] for name in names) for names in request["diagnostics"])
        return DiagnosticRequest(every, first, self.samples, self.indices)


def serve(worker: RankWorker, request: Json, tree: Tree) -> None:
    """Do what rank 0 asks. If a rank fails, rank 0 gets the error and ends the run on all ranks."""
    if request["kind"] == "fetch":
        _send_state(worker, request)
        return
    if request["kind"] == "check":
        _check_files(worker, request)
        return
    parts = unflatten(tree)
    start = worker.start
    server = ServerState(
        params=parts.get("params", {}),
        buffers=parts.get("buffers", {}),
        fixed={**start.fixed, **parts.get("fixed", {})},
        extra={name: parts.get(f"extra/{name}", {}) for name in start.extra},
        round=request["round"],
    )
    try:
        worker.work(request, server)
    except Exception:
        if worker.ranks.broken:
            raise


def _check_files(worker: RankWorker, request: Json) -> None:
    """Check this rank's files; rank 0 gets the error of every rank."""
    try:
        worker.files.check(request["round"], request["contents"])
    except Exception:
        if worker.ranks.broken:
            raise


def _send_state(worker: RankWorker, request: Json) -> None:
    """Send rank 0 the state of a client, if this rank keeps it."""
    if request["rank"] != worker.ranks.rank:
        worker.ranks.gather({})
        return
    try:
        state = worker.store.get(request["client"], request["before_round"])
    except Exception as error:
        worker.ranks.gather(describe_error(error))
        return
    flat = flatten(state or {})
    worker.ranks.gather({"exists": state is not None, "leaves": leaves_of(flat)})
    worker.ranks.send(flat)
