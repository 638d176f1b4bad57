"""One question to a cohort: its clients are asked, and what they send is added up."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedblade.core.client_diagnostics import DiagnosticRequest
from fedblade.core.cohort import Cohort
from fedblade.core.errors import RunFailed
from fedblade.core.outcome import StepLog
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.sums import Sum
from fedblade.core.tree import tree_bytes
from fedblade.engines.base import OnClient, RoundOutcome
from fedblade.engines.nodes._admission import MISSING, REFUSED, Template
from fedblade.engines.nodes._arrivals import Arrivals
from fedblade.engines.nodes._dispatch import Dispatch
from fedblade.engines.nodes._ledger import held, put_down
from fedblade.engines.nodes._post import Kind, Request
from fedblade.engines.packing import unpack


@dataclass(frozen=True)
class Question:
    """What every client of a cohort is asked: its facts, the sums that are wanted, and what an answer looks like."""

    kind: Kind
    facts: Mapping[str, Any]
    declared: tuple[Sum, ...]
    diagnostics: DiagnosticRequest | None
    template: Template


class Gathering:
    """Asks every client of a cohort, and those that are missing again while they are too many.

    In the fixed order replies that come early wait in `folder`. The client that diagnostics ask more of is the first
    that can be reached.
    """

    def __init__(
        self, dispatch: Dispatch, question: Question, server: ServerState, tasks: Cohort, store: ClientStore
    ) -> None:
        self._dispatch, self._question, self._server = dispatch, question, server
        self._tasks, self._store = tasks, store
        self._ledger = {client: held(store.get(client, server.round)).used for client in tasks.clients}
        self._first: int | None = None
        self._refused = self._bytes_up = 0
        self._observing: dict[int, float] = {}

    def outcome(self, folder: Path, on_client: OnClient) -> RoundOutcome:
        """The sum of what came, once a quorum has answered; what is missing or was refused is counted in its log."""
        terms, asked, clients = self._dispatch.terms, self._question, self._tasks.clients
        wanted = terms.wanted(len(clients))
        began = time.monotonic()
        with Arrivals(clients, terms.order, folder, self._unpacked) as arrivals:
            for attempt in range(terms.attempts):
                deadline = time.monotonic() + terms.round_seconds
                self._dispatch.refresh()
                self._ask(attempt, arrivals, on_client)
                if len(arrivals.clients) >= wanted:
                    return self._counted(arrivals, time.monotonic() - began)
                found = {"replies": len(arrivals.clients), "wanted": wanted}
                self._dispatch.note("too few replies", asked.kind, self._tasks.round, **found)
                if attempt + 1 < terms.attempts:
                    # A node that is gone may be on its way back; asking at once would use up all attempts.
                    self._dispatch.wait_for(set(clients) - arrivals.clients, deadline)
            raise RunFailed(
                f"round {self._tasks.round + 1}: {len(arrivals.clients)} of {len(clients)} clients answered in "
                f"{terms.attempts} attempts of {terms.round_seconds:g} s; {wanted} are needed "
                f"(flower.quorum). Look at deployment.jsonl in the run's folder, then go on with --resume."
            )

    def _ask(self, attempt: int, arrivals: Arrivals, on_client: OnClient) -> None:
        """Ask those that have not answered, and take what may be used."""
        requests = self._requests(attempt, arrivals)
        question, round_ = self._question, self._tasks.round
        for request, reply in self._dispatch.answers(question.kind, requests, question.template, round_):
            if request is None or reply is None:
                self._refused += 1
                continue
            client = int(request.facts["client"])
            arrivals.put(client, reply.tensors, reply.facts)
            self._bytes_up += tree_bytes(reply.tensors)
            self._observing[request.node] = self._observing.get(request.node, 0.0) + float(reply.facts["seconds"])
            if question.kind == "train":
                put_down(self._store, client, round_, kept=reply.facts.get("kept") is True)
            on_client(client)

    def _requests(self, attempt: int, arrivals: Arrivals) -> list[Request]:
        """A request for each client that is missing and whose node can be reached."""
        tensors, found = self._dispatch.sent(self._server), []
        for client in self._tasks.clients:
            if client in arrivals.clients:
                continue
            facts = {**self._question.facts, "attempt": attempt, "used": self._ledger[client]}
            is_first = self._first in (None, client)
            request = self._dispatch.request(
                self._question.kind, client, self._tasks.round, {**facts, "is_first": is_first}, tensors
            )
            if request is not None:
                found.append(request)
                self._first = client if is_first else self._first
        return found

    def _unpacked(self, tree: Mapping[str, Any], facts: Mapping[str, Any]) -> RoundOutcome:
        return unpack(dict(tree), {**facts, "seconds": 0.0}, self._question.declared, self._question.diagnostics)

    def _counted(self, arrivals: Arrivals, elapsed: float) -> RoundOutcome:
        """The sum with what is missing; nodes observe at the same time, and none for longer than the round took."""
        outcome = arrivals.total()
        observing = min(max(self._observing.values(), default=0.0), elapsed)
        counted = {MISSING: len(self._tasks) - len(arrivals.clients), REFUSED: self._refused}
        seen = {name: float(count) for name, count in counted.items() if count}
        log = outcome.log + StepLog(seen, dict.fromkeys(seen, 1))
        observed = replace(outcome.observed, seconds=observing)
        return replace(outcome, log=log, bytes_up=self._bytes_up, observed=observed)
