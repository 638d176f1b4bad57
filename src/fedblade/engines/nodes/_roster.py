"""Which node speaks for which client."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from fedblade.core.errors import RunFailed
from fedblade.core.untrusted_text import REASON_CHARACTERS, printable
from fedblade.engines.nodes._descriptions import (
    ClientDescription,
    InvalidDescription,
    digests_differ,
    read_descriptions,
)
from fedblade.engines.nodes._transport import Reply, Request, SizeLimit, Transport, replies

Journal = Callable[[Mapping[str, Any]], None]
"""Stores an event that a user may want to look up later."""
_GREETING_SECONDS, _REPEATED_GREETING_SECONDS = 120.0, 10.0
"""How long the server waits for the answer to a greeting, and to a greeting of a node that was silent before."""
_GREETING_LIMIT = SizeLimit(0, 0, facts=10_000_000)
"""The longest answers to a greeting have the class counts of many clients."""
_PAUSE = 0.5
_log = logging.getLogger(__name__)
_MAX_LISTED = 8
"""Clients or nodes that a message lists."""


class Roster:
    """Knows the node of every client, and the clients' data as their nodes described it.

    A client belongs to the first node that claims it. Another node can take the client over only when the first node is
    gone, and only with the same samples once the run has begun. A node that comes back with other samples no longer
    speaks for the client. `greeting` are the facts that every node needs for its answer. `digests` are the salted
    digests of the clients' samples when the run began, if the run goes on.
    """

    def __init__(
        self,
        transport: Transport,
        greeting: Mapping[str, Any],
        num_clients: int,
        journal: Journal,
        digests: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self._transport, self._greeting, self._num_clients, self._journal = transport, greeting, num_clients, journal
        self._digests_at_start = digests
        self._greeted: dict[int, str] = {}
        self._nodes: dict[int, int] = {}
        self._refusals: dict[tuple[int, str], None] = {}
        self._accepted: set[int] = set()
        self._silent: set[int] = set()
        self._begun = False
        self.clients: dict[int, ClientDescription] = {}

    def gather(self, seconds: float) -> None:
        """Wait until every client has a node; two nodes that claim one client are an error."""
        deadline = time.monotonic() + seconds
        while True:
            contested = self._greet(max(deadline - time.monotonic(), _PAUSE))
            if contested:
                raise RunFailed(f"{contested[0]}. Give every node clients of its own, then start again.")
            missing = [client for client in range(self._num_clients) if client not in self._nodes]
            if not missing:
                self._begun = True
                return
            if time.monotonic() > deadline:
                refused = [f"Node {node} was refused: {reason}." for node, reason in self._refusals][:_MAX_LISTED]
                raise RunFailed(
                    f"after {seconds:.0f} s there is no node for client(s) {_listed(missing)} of {self._num_clients}. "
                    f"{' '.join((*refused, ''))}Start their nodes, or lower federation.num_clients, and start again."
                )
            time.sleep(_PAUSE)

    def node_of(self, client: int) -> int | None:
        """The node of a client, if it can be reached."""
        node = self._nodes.get(client)
        return node if node in self._transport.nodes() else None

    def refresh(self, seconds: float) -> None:
        """Greet nodes that are new or have come back; a refused node does not stop a run that has begun."""
        self._greet(seconds)

    def _greet(self, seconds: float) -> list[str]:
        """Greet nodes that were not greeted yet; a sentence for each client that two nodes claim.

        Once the run has begun, a node is greeted once, so that a node which never answers does not delay every round.
        Two kinds of nodes are greeted again: nodes that were accepted before and now fail, and silent nodes while a
        client is missing, with a short wait.
        """
        there = dict(self._transport.nodes())
        missing = any(self._nodes.get(client) not in there for client in range(self._num_clients))
        new = [node for node, incarnation in there.items() if self._greeted.get(node) != incarnation]
        new += [node for node in sorted(self._silent & self._greeted.keys()) if missing and node in there]
        longest = _GREETING_SECONDS if set(new) - self._silent else _REPEATED_GREETING_SECONDS
        again, silent = set() if self._begun else set(new), set(new)
        contested: list[str] = []
        requests = [Request("hello", node, self._greeting) for node in new]
        for request, reply in replies(self._transport, requests, min(seconds, longest), _GREETING_LIMIT):
            silent.discard(-1 if request is None else request.node)
            if request is None:
                self._refuse(reply.node, reply.error or "")
            elif reply.node is None or not reply.request:
                again.add(request.node)
                self._refuse(request.node, reply.error or "")
            elif (conflicts := self._accept(request.node, reply, there)) is not None:
                again.discard(request.node)
                contested += conflicts
            elif request.node in self._accepted:
                again.add(request.node)
        self._drop_silent(silent)
        self._silent = (self._silent - set(new)) | silent
        self._greeted |= {node: there[node] for node in new if node not in again}
        return contested

    def _drop_silent(self, nodes: Iterable[int]) -> None:
        """Once the run has begun, a node that does not answer its greeting loses its clients: its data are unknown."""
        for node in nodes if self._begun else ():
            self._refuse(node, "it does not answer its greeting")
            self._release(node, list(self._nodes))

    def _accept(self, node: int, reply: Reply, there: Collection[int]) -> list[str] | None:
        """Take over a node's clients: a sentence for each that another node has, None if the answer is invalid."""
        try:
            if reply.error is not None:
                raise InvalidDescription(reply.error)
            described = read_descriptions(reply.facts, self._num_clients, self._greeting)
        except InvalidDescription as invalid:
            self._refuse(node, str(invalid))
            self._release(node, list(self._nodes))
            return None
        self._release(node, [client for client in self._nodes if client not in described])
        self._accepted.add(node)
        conflicts = []
        for client, description in described.items():
            owner = self._nodes.get(client)
            if owner is not None and owner != node and owner in there:
                conflicts.append(f"node {node} claims client {client}, for which node {owner} speaks")
                self._refuse(node, conflicts[-1], client)
            elif self._holds_other_samples(client, description):
                self._refuse(node, f"client {client} holds other samples than when the run began", client)
                self._release(node, [client])
            else:
                self._nodes[client] = node
                self._note_new_salt(node, client, description.salted_digest)
                self.clients[client] = description
        return conflicts

    def _holds_other_samples(self, client: int, description: ClientDescription) -> bool:
        """Whether a client's samples are not those with which the run began, by their counts or digests."""
        if self._begun and description != self.clients[client]:
            return True
        return digests_differ(self._known_digest(client), description.salted_digest)

    def _note_new_salt(self, node: int, client: int, digest: str) -> None:
        """Write to the journal that samples cannot be compared, because the node has another salt than before."""
        if self._known_digest(client) not in ("", digest):
            self._journal({"event": "new salt", "node": str(node), "client": client})

    def _known_digest(self, client: int) -> str:
        """The salted digest of a client's samples in this run; empty if it is not known yet."""
        described = self.clients.get(client) if self._begun else None
        return self._digests_at_start.get(client, "") if described is None else described.salted_digest

    def _release(self, node: int, clients: Iterable[int]) -> None:
        """Take these clients away from a node, as far as the node speaks for them."""
        for client in clients:
            if self._nodes.get(client) == node:
                del self._nodes[client]

    def _refuse(self, node: int | None, reason: str, client: int | None = None) -> None:
        """Write a refusal to the journal, once for each node and reason."""
        shown = printable(reason, REASON_CHARACTERS).removesuffix(".")
        if (node or 0, shown) not in self._refusals:
            self._refusals[node or 0, shown] = None
            self._journal({"event": "refused node", "node": str(node), "client": client, "reason": shown})
            _log.warning("node %s was refused: %s", node, shown)


def _listed(clients: list[int]) -> str:
    return ", ".join(str(client) for client in clients[:_MAX_LISTED]) + (", …" if len(clients) > _MAX_LISTED else "")
