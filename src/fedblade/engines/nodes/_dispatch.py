"""Requests to the nodes of clients, and those of their replies that may be used."""

import functools
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedblade.core.state import ServerState, flatten
from fedblade.core.tree import Tree, tree_digest
from fedblade.engines.nodes._admission import Template
from fedblade.engines.nodes._arrivals import Order
from fedblade.engines.nodes._in_short import printable
from fedblade.engines.nodes._post import Kind, Post, Reply, Request, Size, replies
from fedblade.engines.nodes._roster import LONGEST, Journal, Roster

_PAUSE = 0.5
"""Seconds between two looks for nodes that are gone."""
_ROUNDING = 1e-9
_REPEATED = ("client", "round", "is_first")
"""Facts of a request that its reply has to repeat."""


@dataclass(frozen=True)
class Terms:
    """How long a round may last and how many of its clients must answer.

    A round ends when all have answered or after `round_seconds`. With fewer than `quorum` of the cohort the missing
    ones are asked again, `attempts` times in all, when their nodes are back or that time is over; then the run stops,
    resumable. In the fixed `order` sums are those of the sequential engine to the last bit; by arrival the last bits
    may differ from run to run. `oldest` says how many rounds back a run may have to go on from, so that nodes keep the
    state of clients as long. `max_norm` is how many times as long as the model an update may be.
    """

    round_seconds: float = 600.0
    quorum: float = 0.5
    attempts: int = 3
    order: Order = "fixed"
    oldest: int = 2
    max_norm: float = 100.0

    def wanted(self, asked: int) -> int:
        """How many of the clients that are asked must answer."""
        return math.ceil(self.quorum * asked - _ROUNDING)


class Dispatch:
    """Finds the nodes of clients, asks them and judges what they answer; what is refused is noted in the journal.

    `greeting` gives the facts that every request carries, `sent` names the parts of the server's extra state that
    clients need, `start` is the state that the run began with. Nodes make the fixed tensors of the start themselves,
    frozen layers among them, and are sent those that have changed, or all if theirs are not the server's.
    """

    def __init__(
        self,
        post: Post,
        roster: Roster,
        terms: Terms,
        greeting: Callable[[], Mapping[str, Any]],
        journal: Journal,
        sent: Sequence[str],
        start: ServerState,
    ) -> None:
        self._post, self._roster, self.terms, self._facts = post, roster, terms, greeting
        self._journal, self._extra, self._start = journal, tuple(sent), start
        self._needless: frozenset[str] = frozenset()
        self._asked: dict[int, str | None] = {}
        self._lost: dict[int, str | None] = {}

    @functools.cached_property
    def _greeting(self) -> Mapping[str, Any]:
        return {**self._facts(), "oldest": self.terms.oldest}

    @functools.cached_property
    def _digest(self) -> str:
        return tree_digest(self._start.fixed)

    @property
    def everyone(self) -> list[int]:
        """All clients that hold samples, in ascending id."""
        return [client for client, holding in sorted(self._roster.held.items()) if any(holding.counts)]

    def refresh(self) -> None:
        """Take notice of nodes that are new or have come back."""
        self._roster.refresh(self.terms.round_seconds)

    def wait_for(self, clients: Collection[int], deadline: float) -> None:
        """Wait until all of the clients have a node that can be reached, or the time is over."""
        while time.monotonic() < deadline and not all(self._is_back(client) for client in clients):
            time.sleep(min(_PAUSE, max(0.0, deadline - time.monotonic())))
            self.refresh()

    def _is_back(self, client: int) -> bool:
        """Whether a client's node is there, and is not the one that was found to be gone though it is still listed."""
        node = self._roster.node_of(client)
        if node is None:
            return False
        return client not in self._lost or self._post.nodes().get(node) != self._lost[client]

    def note(self, event: str, kind: Kind, round_: int, **facts: Any) -> None:
        """Put down what happened; rounds count from 1 there, and what comes after a round belongs to it."""
        shown = round_ + 1 if kind in ("train", "collect") else round_
        self._journal({"event": event, "round": shown, "kind": kind, **facts})

    def sent(self, server: ServerState) -> Tree:
        """What every client needs of the server's state, unless its node has made a part of it itself."""
        self._needless = frozenset(f"fixed/{name}" for name in server.unmoved(self._start))
        extra = {f"extra/{name}": server.extra[name] for name in self._extra}
        parts = flatten({"params": server.params, "buffers": server.buffers, "fixed": server.fixed} | extra)
        return {name: leaf.cpu() for name, leaf in parts.items()}

    def request(self, kind: Kind, client: int, round_: int, facts: Mapping[str, Any], tensors: Tree) -> Request | None:
        """What the node of a client is asked; None if no node can be reached."""
        node = self._roster.node_of(client)
        if node is None:
            self.note("no node", kind, round_, client=client)
            return None
        self._asked[client] = self._post.nodes().get(node)
        self._lost.pop(client, None)
        asked = {**self._greeting, **facts, "client": client, "round": round_}
        if self._needless and self._roster.held[client].fixed == self._digest:
            asked["fixed"] = self._digest
            tensors = {name: leaf for name, leaf in tensors.items() if name not in self._needless}
        return Request(kind, node, asked, tensors)

    def answers(
        self, kind: Kind, requests: Sequence[Request], template: Template, round_: int
    ) -> Iterator[tuple[Request | None, Reply | None]]:
        """Each request with its reply, as replies come; None for a reply that is refused.

        A node that turns out to be gone is noted and gives nothing.
        """
        for request, reply in replies(self._post, requests, self.terms.round_seconds, Size.of(template.tensors)):
            if request is None:
                self._refuse(kind, round_, None, reply.node, reply.error or "")
                yield None, None
                continue
            client = int(request.facts["client"])
            if reply.node is None:
                self._lost[client] = self._asked.get(client)
                self.note("lost", kind, round_, client=client, node=str(request.node), reason=reply.error or "")
                continue
            asked = {key: request.facts[key] for key in _REPEATED if key in request.facts} | {"kind": kind}
            reason = template.refusal(reply, asked)
            if reason is not None:
                self._refuse(kind, round_, client, request.node, reason)
            yield request, reply if reason is None else None

    def _refuse(self, kind: Kind, round_: int, client: int | None, node: int | None, reason: str) -> None:
        self.note("refused reply", kind, round_, client=client, node=str(node), reason=printable(reason, LONGEST))
