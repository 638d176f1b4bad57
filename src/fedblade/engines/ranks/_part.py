"""A rank's part in a run: its share of the clients, with its own engine and store."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from fedblade.core.client_diagnostics import DiagnosticRequest
from fedblade.core.cohort import Cohort
from fedblade.core.plan import ClientTask, Planner
from fedblade.core.problem import Problem
from fedblade.core.samples import Samples
from fedblade.core.state import ClientStore, ServerState, flatten, unflatten
from fedblade.core.sums import Sum
from fedblade.core.tree import Tree
from fedblade.engines.base import Engine, OnClient, RoundOutcome
from fedblade.engines.ranks._bytes import Json, leaves_of
from fedblade.engines.ranks._ranks import Ranks
from fedblade.engines.ranks._shares import Shares, estimated_costs, owned_shares, share_out
from fedblade.engines.ranks._sums import added, described, one_by_one

Order = Literal["any", "fixed"]


@dataclass(frozen=True)
class Part:
    """What a rank has for its part in a run; all but the store is the same everywhere.

    `store` keeps the states of the clients that this rank trains; with `owned` those are always the same clients.
    `watched` are the sums that diagnostics may ask for, by name, with the samples they are measured on.
    """

    ranks: Ranks
    engine: Engine
    problem: Problem
    planner: Planner
    start: ServerState
    store: ClientStore
    watched: Mapping[str, Sum]
    samples: Samples
    indices: Tensor
    order: Order = "any"
    owned: bool = False

    @property
    def device(self) -> torch.device:
        """Where sums are added up."""
        return self.problem.samples.labels.device

    def shares(self, cohort: Cohort) -> Shares:
        """Which rank takes which clients."""
        if self.owned:
            return owned_shares(cohort.clients, self.ranks.world)
        return share_out(estimated_costs(cohort), self.ranks.world)

    def do(self, request: Json, server: ServerState, on_client: OnClient = lambda _: None) -> RoundOutcome:
        """This rank's share of a request; rank 0 gets what all sent, the others nothing."""
        shares: Shares = request["shares"]
        mine = _Noted(self.planner, request["cohort_round"], tuple(shares[self.ranks.rank]))
        declared = self._declared(request)
        diagnostics = self._diagnostics(request)
        work = self._one_by_one if self.order == "fixed" else self._together
        return work(request, server, mine, declared, diagnostics, on_client)

    def _together(
        self,
        request: Json,
        server: ServerState,
        mine: "_Noted",
        declared: tuple[Sum, ...],
        diagnostics: DiagnosticRequest | None,
        on_client: OnClient,
    ) -> RoundOutcome:
        try:
            share: RoundOutcome | Exception = self._work(request, server, mine, declared, diagnostics, on_client)
        except Exception as error:
            share = error
        rows = mine.clients if request["kind"] == "collect" else mine.stepping
        return added(self.ranks, share, rows, declared, diagnostics, self.device)

    def _one_by_one(
        self,
        request: Json,
        server: ServerState,
        mine: "_Noted",
        declared: tuple[Sum, ...],
        diagnostics: DiagnosticRequest | None,
        on_client: OnClient,
    ) -> RoundOutcome:
        try:
            shares: dict[int, RoundOutcome] | Exception = {
                client: self._work(request, server, mine.only([client]), declared, diagnostics, on_client)
                for client in mine.clients
            }
        except Exception as error:
            shares = error
        return one_by_one(self.ranks, shares, request["shares"], declared, diagnostics, self.device)

    def _work(
        self,
        request: Json,
        server: ServerState,
        mine: Cohort,
        declared: tuple[Sum, ...],
        diagnostics: DiagnosticRequest | None,
        on_client: OnClient,
    ) -> RoundOutcome:
        """What some clients send, in this process."""
        if not mine.clients:
            return RoundOutcome()
        if request["kind"] == "collect":
            return self.engine.collect(server, mine, self.store, declared)
        self.store.forget_before(request["keep_from"])
        others_first = diagnostics is not None and request["first"] not in mine.clients
        asked = replace(diagnostics, first=()) if diagnostics is not None and others_first else diagnostics
        return self.engine.train(server, mine, self.store, request["lr"], on_client, asked)

    def _declared(self, request: Json) -> tuple[Sum, ...]:
        method = self.problem.method
        return method.sums if request["kind"] == "train" else method.exchanges[request["exchange"]].sums

    def _diagnostics(self, request: Json) -> DiagnosticRequest | None:
        if request.get("diagnostics") is None:
            return None
        every, first = (tuple(self.watched[name] for name in names) for names in request["diagnostics"])
        return DiagnosticRequest(every, first, self.samples, self.indices)


@dataclass(frozen=True)
class _Noted(Cohort):
    """A cohort that remembers which of its clients made a step."""

    stepping: list[int] = field(default_factory=list)

    def __iter__(self) -> Iterator[ClientTask]:
        for task in super().__iter__():
            if task.num_steps:
                self.stepping.append(task.client)
            yield task


def serve(part: Part, request: Json, tree: Tree) -> None:
    """Do what rank 0 asks. If any rank fails, rank 0 hears of it and dismisses everyone."""
    if request["kind"] == "fetch":
        _answer(part, request)
        return
    parts = unflatten(tree)
    start = part.start
    server = ServerState(
        params=parts.get("params", {}),
        buffers=parts.get("buffers", {}),
        fixed={**start.fixed, **parts.get("fixed", {})},
        extra={name: parts.get(f"extra/{name}", {}) for name in start.extra},
        round=request["round"],
    )
    try:
        part.do(request, server)
    except Exception:
        if part.ranks.broken:
            raise


def _answer(part: Part, request: Json) -> None:
    """Send rank 0 the state of a client that is kept here."""
    if request["rank"] != part.ranks.rank:
        part.ranks.gather({})
        return
    try:
        state = part.store.get(request["client"], request["before_round"])
    except Exception as error:
        part.ranks.gather(described(error))
        return
    flat = flatten(state or {})
    part.ranks.gather({"found": state is not None, "leaves": leaves_of(flat)})
    part.ranks.send(flat)
