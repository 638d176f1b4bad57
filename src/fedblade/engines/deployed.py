"""Clients on other machines: requests go out, replies are checked and added as they come."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedblade.core.cohort import Cohort
from fedblade.core.errors import RunFailed, Unsupported
from fedblade.core.observe import Watch
from fedblade.core.outcome import StepLog
from fedblade.core.phase import Phase
from fedblade.core.problem import Problem
from fedblade.core.registry import engines
from fedblade.core.samples import Samples
from fedblade.core.state import ClientStore, ServerState, flatten, unflatten
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import State, Tree, tree_bytes, tree_map
from fedblade.engines._admission import Template
from fedblade.engines._arrivals import Arrivals, Order
from fedblade.engines._post import Kind, Post, Request, replies
from fedblade.engines._roster import Journal, Roster
from fedblade.engines._templates import Templates
from fedblade.engines._wire import KINDS, unpack
from fedblade.engines.base import Engine, Holder, OnClient, OwnStates, RoundOutcome

LEDGER, TUNED = "_ledger", "_tuned"
"""What the server keeps of a client instead of its state: the last round whose reply was used, and how often its own
model was tuned since."""
_AT_A_TIME = 32
"""Own models that are measured at a time."""


@dataclass(frozen=True)
class Terms:
    """How long a round may last and how many of its clients must answer.

    A round ends when all have answered or after `round_seconds`. With fewer than `quorum` of the cohort the missing
    ones are asked again, `attempts` times in all; then the run stops, resumable. In the fixed `order` sums are those of
    the sequential engine to the last bit; by arrival the last bits may differ from run to run. `oldest` says how many
    rounds back a run may have to go on from, so that nodes keep the state of clients as long.
    """

    round_seconds: float = 600.0
    quorum: float = 0.5
    attempts: int = 3
    order: Order = "fixed"
    oldest: int = 2


class DeployedEngine:
    """Trains on the nodes of a roster. What needs no client, the server's `local` engine does.

    `greeting` gives the facts that every request carries, `folder` is where replies wait that come early, `test` the
    samples that the server measures on, None where nodes measure on their own.
    """

    name = "flower"

    def __init__(
        self,
        problem: Problem,
        local: Engine,
        post: Post,
        roster: Roster,
        terms: Terms,
        greeting: Callable[[], Mapping[str, Any]],
        folder: Path,
        journal: Journal,
        test: Samples | None,
    ) -> None:
        self._problem, self._local, self._post, self._roster = problem, local, post, roster
        self._terms, self._facts, self._folder, self._journal = terms, greeting, folder, journal
        self._test = test
        self._templates = Templates(problem, local)

    @functools.cached_property
    def _greeting(self) -> Mapping[str, Any]:
        return self._facts()

    def train(
        self,
        server: ServerState,
        tasks: Cohort,
        store: ClientStore,
        lr: float,
        on_client: OnClient,
        watch: Watch | None = None,
    ) -> RoundOutcome:
        """Have every client of the cohort train where its data are, and add up what they send."""
        facts = {"lr": lr, "every": _names(watch, "every"), "first": _names(watch, "first")}
        return self._ask("train", server, tasks, store, facts, self._problem.method.sums, watch, on_client)

    def collect(self, server: ServerState, tasks: Cohort, store: ClientStore, sums: tuple[Sum, ...]) -> RoundOutcome:
        """Gather an exchange's sums."""
        facts = {"sums": [each.name for each in sums]}
        return self._ask("collect", server, tasks, store, facts, sums, None, lambda _: None)

    def measure(
        self, server: ServerState, samples: Samples, indices: Tensor, passes: Sequence[DataPass]
    ) -> Mapping[str, Tree]:
        """Run passes with the global model: on the server's samples, or on those of every node."""
        if self._test is not None:
            return self._local.measure(server, samples, indices, passes)
        everyone: list[tuple[int, dict[str, Any], Tree]] = [(client, {}, {}) for client in sorted(self._roster.held)]
        found = [totals for _, totals in self._measured(server, everyone, passes, own=False)]
        if not found:
            raise RunFailed("no node could measure the model. `fedblade flower status` says which are there.")
        total = found[0]
        for each in found[1:]:
            total = {name: tree_map(torch.add, tree, each[name]) for name, tree in total.items()}
        return total

    def adapt(
        self,
        server: ServerState,
        tasks: Cohort,
        own: OwnStates,
        lr: float,
        phases: tuple[Phase, ...],  # noqa: ARG002 - nodes know them by their place
    ) -> Iterator[tuple[int, State]]:
        """Have clients tune their own models and keep them; what comes back says only how often they were tuned."""
        template = Template({}, dict.fromkeys(KINDS, ()), frozenset(), {})
        facts = {"lr": lr, "round": tasks.round, "first_epoch": tasks.first_epoch, "oldest": self._terms.oldest}
        requests = []
        for client in tasks.clients:
            node, held = self._roster.node_of(client), _held(own(client))
            if node is not None:
                whole = {**self._greeting, **facts, "client": client, "used": held.used, "stage": held.stage}
                requests.append(Request("tune", node, whole, self._sent(server)))
        for request, reply in replies(self._post, requests, self._terms.round_seconds):
            client, stage = int(request.facts["client"]), int(request.facts["stage"])
            reason = template.refusal(reply, {"client": client, "round": tasks.round, "kind": "tune"})
            if reason is not None:
                self._refuse(tasks.round, client, request.node, reason)
                continue
            yield client, {**(own(client) or {}), TUNED: {"stage": torch.tensor(stage + 1)}}

    def measure_own(
        self,
        server: ServerState,
        clients: Iterable[tuple[Holder, Tensor]],
        samples: Samples,
        passes: Sequence[DataPass],
    ) -> Iterator[tuple[int, Mapping[str, Tree]]]:
        """Run passes with the clients' own models on their nodes."""
        part = "test" if samples is self._test else "own"
        group: list[tuple[int, dict[str, Any], Tree]] = []
        for holder, indices in clients:
            held = _held(holder.state)
            facts = {"part": part, "used": held.used, "stage": held.stage}
            group.append((holder.client, facts, {"indices": indices.cpu()}))
            if len(group) == _AT_A_TIME:
                yield from self._measured(server, group, passes, own=True)
                group = []
        yield from self._measured(server, group, passes, own=True)

    def _ask(
        self,
        kind: Kind,
        server: ServerState,
        tasks: Cohort,
        store: ClientStore,
        facts: Mapping[str, Any],
        declared: tuple[Sum, ...],
        watch: Watch | None,
        on_client: OnClient,
    ) -> RoundOutcome:
        """Ask every client of a cohort, those that are missing again while they are too many."""
        template = self._templates.get(kind, server, tasks, declared, watch, facts.get("lr", 0.0))
        arrivals = Arrivals(
            tasks.clients, self._terms.order, self._folder, lambda tree, rest: unpack(tree, rest, declared, watch)
        )
        ledger = {client: _held(store.get(client, server.round)).used for client in tasks.clients}
        wanted = math.ceil(self._terms.quorum * len(tasks))
        refused = traffic = 0
        for attempt in range(self._terms.attempts):
            self._roster.refresh()
            missing = [client for client in tasks.clients if client not in arrivals.clients]
            common = {**facts, "round": tasks.round, "attempt": attempt, "oldest": self._terms.oldest}
            requests = self._requests(kind, server, missing, common, ledger, tasks.clients[0])
            for request, reply in replies(self._post, requests, self._terms.round_seconds):
                client = int(request.facts["client"])
                asked = {"client": client, "round": tasks.round, "kind": kind, "is_first": request.facts["is_first"]}
                reason = template.refusal(reply, asked)
                if reason is None and request.node != reply.node:
                    reason = f"node {reply.node} answers what node {request.node} was asked"
                if reason is not None:
                    refused += 1
                    self._refuse(tasks.round, client, request.node, reason)
                    continue
                arrivals.put(client, reply.tensors, reply.facts)
                traffic += tree_bytes(reply.tensors)
                if kind == "train":
                    _put_down(store, client, tasks.round, kept=bool(reply.facts.get("kept")))
                on_client(client)
            if len(arrivals.clients) >= wanted:
                break
            self._journal({"event": "too few replies", "round": tasks.round + 1, "replies": len(arrivals.clients)})
        else:
            raise RunFailed(
                f"round {tasks.round + 1}: {len(arrivals.clients)} of {len(tasks)} clients answered in "
                f"{self._terms.attempts} attempts of {self._terms.round_seconds:g} s; {wanted} are needed "
                f"(flower.quorum). Look at deployment.jsonl in the run's folder, then go on with --resume."
            )
        outcome = arrivals.total()
        counted = {"count_missing_clients": len(tasks) - len(arrivals.clients), "count_refused_replies": refused}
        seen = {name: float(count) for name, count in counted.items() if count}
        return replace(outcome, log=outcome.log + StepLog(seen, dict.fromkeys(seen, 1)), bytes_up=traffic)

    def _requests(
        self,
        kind: Kind,
        server: ServerState,
        clients: Sequence[int],
        facts: Mapping[str, Any],
        ledger: Mapping[int, tuple[int, bool] | None],
        first: int,
    ) -> list[Request]:
        """A request for each client whose node can be reached."""
        tensors = self._sent(server)
        found = []
        for client in clients:
            node = self._roster.node_of(client)
            if node is None:
                self._journal({"event": "no node", "client": client, "round": facts["round"] + 1})
                continue
            own = {"client": client, "used": ledger[client], "is_first": client == first}
            found.append(Request(kind, node, {**self._greeting, **facts, **own}, tensors))
        return found

    def _sent(self, server: ServerState) -> Tree:
        """What every client needs of the server's state."""
        extra = {f"extra/{name}": server.extra[name] for name in self._problem.method.sent}
        parts = flatten({"params": server.params, "buffers": server.buffers, "fixed": server.fixed} | extra)
        return {name: leaf.cpu() for name, leaf in parts.items()}

    def _measured(
        self,
        server: ServerState,
        clients: Sequence[tuple[int, Mapping[str, Any], Tree]],
        passes: Sequence[DataPass],
        *,
        own: bool,
    ) -> list[tuple[int, Mapping[str, Tree]]]:
        """What clients measure, in ascending id; those that do not answer are left out."""
        template = self._templates.of_passes(server, passes)
        facts = {"passes": [each.name for each in passes], "own": own, "round": server.round}
        requests = []
        for client, more, tensors in clients:
            node = self._roster.node_of(client)
            if node is not None:
                whole = {**self._greeting, **facts, **more, "client": client}
                requests.append(Request("measure", node, whole, {**self._sent(server), **tensors}))
        found: dict[int, Mapping[str, Tree]] = {}
        for request, reply in replies(self._post, requests, self._terms.round_seconds):
            client = int(request.facts["client"])
            reason = template.refusal(reply, {"client": client, "round": server.round, "kind": "measure"})
            if reason is not None:
                self._refuse(server.round, client, request.node, reason)
                continue
            if reply.tensors:
                found[client] = {name.partition("/")[2]: tree for name, tree in unflatten(reply.tensors).items()}
        return sorted(found.items())

    def _refuse(self, round_: int, client: int, node: int, reason: str) -> None:
        self._journal(
            {"event": "refused reply", "round": round_ + 1, "client": client, "node": str(node), "reason": reason}
        )


def _names(watch: Watch | None, kind: str) -> list[str]:
    """The sums that diagnostics ask for, by name."""
    return [] if watch is None else [each.name for each in getattr(watch, kind)]


@dataclass(frozen=True)
class _Held:
    """Which of its states a client is to take: the last round that was used and whether it kept anything then."""

    used: tuple[int, bool] | None
    stage: int


def _held(state: State | None) -> _Held:
    """What the server's note on a client says; a client without one has never been used."""
    ledger, tuned = (state or {}).get(LEDGER), (state or {}).get(TUNED)
    used = None if ledger is None else (int(ledger["round"]), bool(ledger["kept"]))
    return _Held(used, 0 if tuned is None else int(tuned["stage"]))


def _put_down(store: ClientStore, client: int, round_: int, *, kept: bool) -> None:
    """Note that a client's reply was used, so that a run that goes on finds the client's state of that round."""
    store.put(client, round_, {LEDGER: {"round": torch.tensor(round_), "kept": torch.tensor(kept)}})


@engines.register()
def flower(problem: Problem) -> Engine:  # noqa: ARG001 - what every engine is made from
    """Clients on other machines, through Flower: `fedblade flower init` makes an app of a configuration."""
    raise Unsupported(
        "engine 'flower' runs inside a Flower app. Make one with `fedblade flower init DIR CONFIG.toml` and start it "
        "with `fedblade flower run DIR`."
    )
