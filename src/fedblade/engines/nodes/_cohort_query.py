"""Asks all clients of a cohort the same question and adds up their replies."""

import itertools
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
from fedblade.core.words import plural
from fedblade.engines.base import OnClient, RoundOutcome
from fedblade.engines.nodes._admission import MISSING, REFUSED, Template
from fedblade.engines.nodes._arrivals import Arrivals
from fedblade.engines.nodes._dispatch import Dispatch
from fedblade.engines.nodes._inquiry import Inquiry
from fedblade.engines.nodes._state_notes import note_used_reply, read_note
from fedblade.engines.nodes._transport import Kind, Request
from fedblade.engines.packing import unpack


@dataclass(frozen=True)
class Question:
    """What every client of a cohort is asked: facts of the request, declared sums, and the template of a reply."""

    kind: Kind
    facts: Mapping[str, Any]
    declared: tuple[Sum, ...]
    diagnostics: DiagnosticRequest | None
    template: Template


class CohortQuery:
    """Asks every client of a cohort, and asks missing clients again while fewer than the quorum have answered.

    The first client that can be reached is the first client for diagnostics.
    """

    def __init__(
        self, dispatch: Dispatch, question: Question, server: ServerState, tasks: Cohort, store: ClientStore
    ) -> None:
        self._dispatch, self._question, self._server = dispatch, question, server
        self._tasks, self._store = tasks, store
        self._used = {client: read_note(store.get(client, server.round)).used for client in tasks.clients}
        self._inquiry = Inquiry(dispatch, question.kind, question.template, tasks.round, dispatch.rules.attempts)
        self._first: int | None = None
        self._taken: dict[int, tuple[int, bool]] = {}
        self._told: set[int] = set()
        self._refused = self._bytes_up = 0
        self._diagnostic_seconds: dict[int, float] = {}
        self._lengths: dict[int, float] = {}

    def outcome(self, folder: Path, on_client: OnClient) -> RoundOutcome:
        """The sum of the replies, once a quorum has answered; its log counts missing clients and refused replies.

        In the fixed order, replies that come early wait in `folder`.
        """
        rules, clients = self._dispatch.rules, self._tasks.clients
        wanted = rules.min_replies(len(clients))
        began = time.monotonic()
        with Arrivals(clients, rules.order, folder, self._unpacked) as arrivals:
            attempts = rules.attempts
            for attempt in itertools.count():
                deadline = time.monotonic() + rules.round_seconds
                self._dispatch.refresh(self._tasks.round)
                self._ask(attempt, arrivals, on_client)
                if self._take_back(arrivals):
                    attempts += 1
                    continue
                if len(arrivals.clients) >= wanted:
                    return self._counted(arrivals, time.monotonic() - began)
                counts = {"replies": len(arrivals.clients), "wanted": wanted}
                self._dispatch.note("too few replies", self._question.kind, self._tasks.round, **counts)
                if attempt + 1 >= attempts:
                    break
                # A lost node may be about to come back; asking again at once would use up all attempts.
                self._dispatch.wait_for(set(clients) - arrivals.clients, deadline)
            raise RunFailed(
                f"round {self._tasks.round + 1}: {len(arrivals.clients)} of {len(clients)} clients gave a usable reply "
                f"in {plural(rules.attempts, 'attempt')} of {rules.round_seconds:g} s; {wanted} are needed "
                f"({rules.setting('quorum')}). {self._inquiry.shortfall(set(clients) - arrivals.clients)} "
                f"Look at deployment.jsonl in the run's folder, then go on with --resume."
            )

    def _ask(self, attempt: int, arrivals: Arrivals, on_client: OnClient) -> None:
        """Ask the clients that have not answered yet, and take the replies that pass all checks."""
        requests = self._requests(attempt, arrivals)
        question = self._question
        missing = set(self._tasks.clients) - arrivals.clients
        for request, reply in self._inquiry.replies(requests, missing, self._dispatch.rules.round_seconds):
            if request is None or reply is None:
                self._refused += 1
                continue
            client = int(request.facts["client"])
            arrivals.put(client, reply.tensors, reply.facts)
            self._bytes_up += tree_bytes(reply.tensors)
            self._note_length(client, question.template.update_length(reply, client))
            before = self._diagnostic_seconds.get(request.node, 0.0)
            self._diagnostic_seconds[request.node] = before + float(reply.facts["seconds"])
            self._taken[client] = request.node, reply.facts.get("kept") is True
            if client not in self._told:
                self._told.add(client)
                on_client(client)

    def _take_back(self, arrivals: Arrivals) -> bool:
        """Forget the replies of nodes that were revoked since; whether others were in one sum with them.

        The other clients are then asked again. Their nodes repeat the replies, which they have kept.
        """
        revoked = [client for client, (node, _) in self._taken.items() if not self._dispatch.is_admitted(client, node)]
        kept = arrivals.clients.difference(revoked)
        arrivals.take_back(revoked)
        for client in revoked:
            self._inquiry.take_back(client, self._taken[client][0])
            self._refused += 1
        for client in self._taken.keys() - arrivals.clients:
            del self._taken[client]
            self._lengths.pop(client, None)
        return arrivals.clients != kept

    def _note_length(self, client: int, length: float | None) -> None:
        if length is not None:
            self._lengths[client] = float(f"{length:.4g}")

    def _requests(self, attempt: int, arrivals: Arrivals) -> list[Request]:
        """A request for each client that has not answered and whose node can be reached."""
        tensors, requests = self._dispatch.server_tensors(self._server), []
        for client in self._tasks.clients:
            if client in arrivals.clients:
                continue
            facts = {**self._question.facts, "attempt": attempt, "used": self._used[client]}
            is_first = self._first in (None, client)
            request = self._inquiry.request(client, {**facts, "is_first": is_first}, tensors)
            if request is not None:
                requests.append(request)
                self._first = client if is_first else self._first
        return requests

    def _unpacked(self, tree: Mapping[str, Any], facts: Mapping[str, Any]) -> RoundOutcome:
        return unpack(dict(tree), {**facts, "seconds": 0.0}, self._question.declared, self._question.diagnostics)

    def _counted(self, arrivals: Arrivals, elapsed: float) -> RoundOutcome:
        """The sum with the counters of the server, and with the seconds of the node whose diagnostics took longest.

        Nodes work at the same time, and none of them for longer than the round took.
        """
        outcome = arrivals.total()
        if self._question.kind == "train":
            for client, (_, kept) in self._taken.items():
                note_used_reply(self._store, client, self._tasks.round, kept=kept)
        if self._lengths:
            lengths = {str(client): self._lengths[client] for client in sorted(self._lengths)}
            self._dispatch.note("updates", self._question.kind, self._tasks.round, lengths=lengths)
        seconds = min(max(self._diagnostic_seconds.values(), default=0.0), elapsed)
        counters = {MISSING: len(self._tasks) - len(arrivals.clients), REFUSED: self._refused}
        nonzero = {name: float(count) for name, count in counters.items() if count}
        log = outcome.log + StepLog(nonzero, dict.fromkeys(nonzero, 1))
        observed = replace(outcome.observed, seconds=seconds)
        contributors = tuple(sorted(arrivals.clients))
        return replace(outcome, log=log, bytes_up=self._bytes_up, observed=observed, contributors=contributors)
