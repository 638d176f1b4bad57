"""Sends requests to the nodes of clients and checks the replies."""

import functools
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedblade.core.state import ServerState, flatten
from fedblade.core.tree import Tree, tree_digest
from fedblade.core.untrusted_text import REASON_CHARACTERS, printable
from fedblade.engines.nodes._admission import Template
from fedblade.engines.nodes._arrivals import Order
from fedblade.engines.nodes._roster import Journal, Roster
from fedblade.engines.nodes._transport import Kind, Reply, Request, SizeLimit, Transport, replies

_PAUSE = 0.5
"""Seconds between two looks for nodes that may come back."""
_ROUNDING = 1e-9
_REPEATED = ("client", "round", "is_first")
"""Facts of a request that its reply has to repeat."""


@dataclass(frozen=True)
class Terms:
    """How long a round may last and how many of its clients must answer.

    A round ends when all clients have answered, or after `round_seconds`. If fewer than `quorum` of the cohort have
    answered by then, the missing clients are asked again when their nodes are back, `attempts` times in all; then the
    run stops and can be resumed. With `order` "fixed" the sums are those of the sequential engine to the last bit; with
    "arrival" the last bits may differ from run to run. A resumed run may restart up to `oldest` rounds back, so nodes
    keep the states of clients that long. An update may be `max_norm` times as long as the model. `table` is the table
    of the configuration that these terms come from; messages name it.
    """

    round_seconds: float = 600.0
    quorum: float = 0.5
    attempts: int = 3
    order: Order = "fixed"
    oldest: int = 2
    max_norm: float = 100.0
    table: str = ""

    def min_replies(self, num_asked: int) -> int:
        """How many of the clients that are asked must answer."""
        return math.ceil(self.quorum * num_asked - _ROUNDING)

    def setting(self, name: str) -> str:
        """The full name of a setting in the configuration, for messages."""
        return f"{self.table}.{name}" if self.table else name


class Dispatch:
    """Finds the nodes of clients, sends them requests and checks their replies; refusals are noted in the journal.

    `common_facts` gives the facts that every request carries. `sent` names the parts of the server's extra state that
    clients need. `start` is the server state at the beginning of the run. Nodes make the fixed tensors of the start
    themselves, such as frozen layers. They are sent only the fixed tensors that have changed, or all of them if a
    node's fixed tensors differ from the server's.
    """

    def __init__(
        self,
        transport: Transport,
        roster: Roster,
        terms: Terms,
        common_facts: Callable[[], Mapping[str, Any]],
        journal: Journal,
        sent: Sequence[str],
        start: ServerState,
    ) -> None:
        self._transport, self._roster, self.terms, self._make_facts = transport, roster, terms, common_facts
        self._journal, self._extra, self._start = journal, tuple(sent), start
        self._made_by_nodes: frozenset[str] = frozenset()
        self._asked: dict[int, str | None] = {}
        self._lost: dict[int, str | None] = {}

    @functools.cached_property
    def _common_facts(self) -> Mapping[str, Any]:
        return {**self._make_facts(), "oldest": self.terms.oldest}

    @functools.cached_property
    def _digest(self) -> str:
        return tree_digest(self._start.fixed)

    @property
    def clients_with_samples(self) -> list[int]:
        """All clients that hold samples, in ascending id."""
        return [client for client, description in sorted(self._roster.clients.items()) if any(description.counts)]

    def test_samples(self, client: int) -> int:
        """The number of test samples that a client's node declared."""
        return self._roster.clients[client].test_samples

    def refresh(self) -> None:
        """Greet nodes that are new or have come back."""
        self._roster.refresh(self.terms.round_seconds)

    def wait_for(self, clients: Collection[int], deadline: float) -> None:
        """Wait until every one of the clients has a node that can be reached, or the time is over."""
        while time.monotonic() < deadline and not all(self._is_back(client) for client in clients):
            time.sleep(min(_PAUSE, max(0.0, deadline - time.monotonic())))
            self.refresh()

    def _is_back(self, client: int) -> bool:
        """Whether a client's node can be reached; a lost node may still be listed under its old incarnation."""
        node = self._roster.node_of(client)
        if node is None:
            return False
        return client not in self._lost or self._transport.nodes().get(node) != self._lost[client]

    def note(self, event: str, kind: Kind, round_: int, **facts: Any) -> None:
        """Write an event to the journal, where rounds count from 1; work after a round belongs to that round."""
        shown = round_ + 1 if kind in ("train", "collect") else round_
        self._journal({"event": event, "round": shown, "kind": kind, **facts})

    def server_tensors(self, server: ServerState) -> Tree:
        """The tensors of the server's state that clients need, including those that nodes may have made themselves."""
        self._made_by_nodes = frozenset(f"fixed/{name}" for name in server.unmoved(self._start))
        extra = {f"extra/{name}": server.extra[name] for name in self._extra}
        parts = flatten({"params": server.params, "buffers": server.buffers, "fixed": server.fixed} | extra)
        return {name: leaf.cpu() for name, leaf in parts.items()}

    def request(self, kind: Kind, client: int, round_: int, facts: Mapping[str, Any], tensors: Tree) -> Request | None:
        """A request to the node of a client; None if no node can be reached."""
        node = self._roster.node_of(client)
        if node is None:
            self.note("no node", kind, round_, client=client)
            return None
        self._asked[client] = self._transport.nodes().get(node)
        self._lost.pop(client, None)
        described = self._roster.clients[client]
        all_facts = {
            **self._common_facts,
            **facts,
            "client": client,
            "round": round_,
            "salted_digest": described.salted_digest,
        }
        if self._made_by_nodes and described.fixed == self._digest:
            all_facts["fixed"] = self._digest
            tensors = {name: leaf for name, leaf in tensors.items() if name not in self._made_by_nodes}
        return Request(kind, node, all_facts, tensors)

    def answers(
        self, kind: Kind, requests: Sequence[Request], template: Template, round_: int
    ) -> Iterator[tuple[Request | None, Reply | None]]:
        """Each request with its reply, as replies arrive; the reply is None if it is refused.

        A client whose node is lost, or that has not replied when the time is over, is noted in the journal and gives
        no pair.
        """
        limit, unanswered = SizeLimit.of(template.tensors), {id(request): request for request in requests}
        for request, reply in replies(self._transport, requests, self.terms.round_seconds, limit):
            if request is None:
                self._refuse(kind, round_, None, reply.node, reply.error or "")
                yield None, None
                continue
            client = int(request.facts["client"])
            unanswered.pop(id(request), None)
            if reply.node is None:
                self._lost[client] = self._asked.get(client)
                self.note("lost", kind, round_, client=client, node=str(request.node), reason=reply.error or "")
                continue
            to_repeat = {key: request.facts[key] for key in _REPEATED if key in request.facts} | {"kind": kind}
            reason = template.refusal(reply, to_repeat, request.facts.get("test_samples"))
            if reason is not None:
                self._refuse(kind, round_, client, request.node, reason)
            yield request, reply if reason is None else None
        for request in unanswered.values():
            facts = {"client": int(request.facts["client"]), "node": str(request.node)}
            self.note("late", kind, round_, **facts, seconds=self.terms.round_seconds)

    def _refuse(self, kind: Kind, round_: int, client: int | None, node: int | None, reason: str) -> None:
        shown = printable(reason, REASON_CHARACTERS)
        self.note("refused reply", kind, round_, client=client, node=str(node), reason=shown)
