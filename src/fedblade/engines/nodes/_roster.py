"""Which node speaks for which client."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from fedblade.core.errors import RunFailed
from fedblade.core.untrusted_text import REASON_CHARACTERS, printable
from fedblade.engines.nodes._descriptions import (
    ClientDescription,
    InvalidDescription,
    digests_differ,
    read_descriptions,
)
from fedblade.engines.nodes._members import Members
from fedblade.engines.nodes._open_requests import OpenRequests
from fedblade.engines.nodes._protocol import own_protocol
from fedblade.engines.nodes._transport import Reply, Request, SizeLimit, Transport

Journal = Callable[[Mapping[str, Any]], None]
"""Stores an event that a user may want to look up later."""
Admitted = Callable[[int], Collection[int] | None]
"""The clients that a node may speak for; None if nobody keeps admissions."""
_Presence = tuple[str, frozenset[int] | None]
"""The incarnation of a node, and the clients that it may speak for."""
_GREETING_SECONDS, _AGAIN_SECONDS, _VALID_SECONDS = 120.0, 300.0, 3600.0
"""After how long the server no longer waits for the answer to a greeting, greets a silent node again, and no longer
takes the answer to an old greeting."""
_TELLING_SECONDS = 60.0
"""How long a node may take to fetch the reason why it was refused."""
_GREETING_LIMIT = SizeLimit(0, 0, facts=10_000_000)
"""The longest answers to a greeting have the class counts of many clients."""
_PAUSE = 0.5
_MAX_LISTED = 8
"""Clients or nodes that a message lists."""
_log = logging.getLogger(__name__)


class Roster:
    """Knows the node of every client, and the clients' data as their nodes described it.

    A client belongs to the first node that claims it. Another node can take the client over only when the first node is
    gone, and only with the same samples once the run has begun. A node that comes back with other samples no longer
    speaks for the client. `greeting` are the facts that every node needs for its answer. `admitted` says for which
    clients a node may speak. `members` are the clients that take part: all that are gathered, or those of the run that
    goes on. A client that is new to such a run joins it at the next `refresh`.
    """

    def __init__(
        self,
        transport: Transport,
        greeting: Mapping[str, Any],
        num_clients: int,
        journal: Journal,
        admitted: Admitted,
        members: Members,
    ) -> None:
        self._transport, self._greeting, self._num_clients, self._journal = transport, greeting, num_clients, journal
        self.admitted, self._members = admitted, members
        self._greetings = OpenRequests(transport, _GREETING_LIMIT)
        self._asked: dict[int, tuple[_Presence, float]] = {}
        self._greeted: dict[int, _Presence] = {}
        self._nodes: dict[int, int] = {}
        self._refusals: dict[tuple[int, str], None] = {}
        self._told: set[tuple[int, str, str]] = set()
        self._accepted: set[int] = set()
        self._described: dict[int, ClientDescription] = {}
        self._begun = False

    @property
    def clients(self) -> Mapping[int, ClientDescription]:
        """The clients that take part, as their nodes described them."""
        return self._members.clients

    def gather(self, seconds: float, wanted: int) -> None:
        """Wait until `wanted` clients have a node; two nodes that claim one client are an error."""
        deadline = time.monotonic() + seconds
        while True:
            contested = self._greet(max(deadline - time.monotonic(), _PAUSE))
            if contested:
                raise RunFailed(f"{contested[0]}. Give every node clients of its own, then start again.")
            missing = [client for client in range(self._num_clients) if client not in self._nodes]
            if self._num_clients - len(missing) >= wanted:
                if not self.clients:
                    self._members.begin({client: self._described[client] for client in sorted(self._nodes)})
                self._begun = True
                return
            if time.monotonic() > deadline:
                raise self._too_few(seconds, missing, wanted)
            time.sleep(_PAUSE)

    def node_of(self, client: int) -> int | None:
        """The node of a client that takes part, if the node can be reached."""
        node = self._nodes.get(client) if client in self.clients else None
        return node if node in self._transport.nodes() else None

    def description_of(self, client: int) -> ClientDescription:
        """The last description of a client that has a node."""
        return self._described[client]

    def takes_part(self, client: int, round_: int) -> bool:
        """Whether a client takes part in a round (from 1)."""
        return self._members.takes_part(client, round_)

    def refresh(self, seconds: float, round_: int) -> None:
        """Greet nodes that are new or have come back; new clients join in `round_` (from 1).

        A refused node does not stop a run that has begun.
        """
        self._greet(seconds)
        for client in sorted(self._nodes.keys() - self.clients.keys()):
            node = self._nodes[client]
            reason = self._members.join(client, self._described[client], round_)
            if reason is None:
                self._journal({"event": "joined", "round": round_, "client": client, "node": str(node)})
            else:
                self._refuse(node, reason, client, tell=True)
                self._release(node, [client])

    def _greet(self, seconds: float) -> list[str]:
        """Greet nodes that were not greeted yet; a sentence for each client that two nodes claim.

        An answer counts whenever it comes, so a silent node is greeted again only after a while. Once the run has
        begun, a node that was refused is greeted again only if it comes back, if its admission changes, or if it was
        accepted before.
        """
        self._greetings.close_expired()
        there, now = self._present(), time.monotonic()
        changed = [node for node in there if self._greeted.get(node) != there[node]]
        outdated = {node for node, (presence, _) in self._asked.items() if presence != there.get(node)}
        self._greetings.close([greeting for greeting in self._greetings if greeting.node in outdated])
        waiting = {
            greeting.node for greeting in self._greetings if now - self._asked[greeting.node][1] < _AGAIN_SECONDS
        }
        new = [node for node in changed if node not in waiting]
        self._asked |= {node: (there[node], now) for node in new}
        again, contested = set() if self._begun else set(changed), list[str]()
        requests = [Request("hello", node, self._greeting) for node in new]
        for request, reply in self._greetings.replies(requests, min(seconds, _GREETING_SECONDS), _VALID_SECONDS):
            if request is None:
                self._refuse(reply.node, reply.error or "")
                continue
            self._greetings.close([greeting for greeting in self._greetings if greeting.node == request.node])
            if reply.node is None or not reply.request:
                again.add(request.node)
                self._refuse(request.node, reply.error or "")
            elif (conflicts := self._accept(request.node, reply, there)) is not None:
                again.discard(request.node)
                contested += conflicts
            elif request.node in self._accepted:
                again.add(request.node)
        silent = {greeting.node for greeting in self._greetings}
        self._drop_silent(silent.intersection(new))
        self._greeted |= {node: there[node] for node in changed if node not in again | silent}
        return contested

    def _present(self) -> dict[int, _Presence]:
        """The nodes that can be reached. A node loses the clients that it is no longer admitted for."""
        there: dict[int, _Presence] = {}
        for node, incarnation in self._transport.nodes().items():
            admitted = self.admitted(node)
            there[node] = (incarnation, None if admitted is None else frozenset(admitted))
        for client, node in list(self._nodes.items()):
            admitted = there[node][1] if node in there else None
            if admitted is not None and client not in admitted:
                self._refuse(node, f"it is no longer admitted for client {client}", client, tell=True)
                self._release(node, [client])
        return there

    def _drop_silent(self, nodes: Iterable[int]) -> None:
        """Once the run has begun, a node that does not answer its greeting loses its clients: its data are unknown."""
        for node in nodes if self._begun else ():
            self._refuse(node, "it does not answer its greeting")
            self._release(node, list(self._nodes))

    def _accept(self, node: int, reply: Reply, there: Mapping[int, _Presence]) -> list[str] | None:
        """Take over a node's clients: a sentence for each that another node has, None if the answer is refused."""
        try:
            if reply.error is not None:
                raise InvalidDescription(reply.error)
            described = read_descriptions(reply.facts, self._num_clients, self._greeting)
            admitted = there[node][1] if node in there else None
            outside = [] if admitted is None else sorted(described.keys() - admitted)
            if outside:
                raise InvalidDescription(f"it claims client {outside[0]}, for which it is not admitted")
        except InvalidDescription as invalid:
            # A node that reports an error has logged it.
            self._refuse(node, str(invalid), tell=reply.error is None)
            self._release(node, list(self._nodes))
            return None
        self._release(node, [client for client in self._nodes if client not in described])
        self._accepted.add(node)
        conflicts = []
        for client, description in described.items():
            owner = self._nodes.get(client)
            if owner is not None and owner != node and owner in there:
                conflicts.append(f"node {node} claims client {client}, for which node {owner} speaks")
                self._refuse(node, conflicts[-1], client, tell=True)
            elif self._holds_other_samples(client, description):
                self._refuse(node, f"client {client} holds other samples than when the run began", client, tell=True)
                self._release(node, [client])
            else:
                if self._known_digest(client) not in ("", description.salted_digest):
                    # The samples cannot be compared with those before.
                    self._journal({"event": "new salt", "node": str(node), "client": client})
                self._nodes[client], self._described[client] = node, description
        return conflicts

    def _holds_other_samples(self, client: int, description: ClientDescription) -> bool:
        """Whether a client's samples are not those with which the run began, by their counts or digests."""
        if description != self.clients.get(client, description):
            return True
        return digests_differ(self._known_digest(client), description.salted_digest)

    def _known_digest(self, client: int) -> str:
        """The salted digest of a client's samples in this run, the newest if it has changed; empty for a new client."""
        described = self._described.get(client) if self._begun else None
        described = described or self.clients.get(client)
        return "" if described is None else described.salted_digest

    def _release(self, node: int, clients: Iterable[int]) -> None:
        """Take these clients away from a node, as far as the node speaks for them."""
        for client in clients:
            if self._nodes.get(client) == node:
                del self._nodes[client]

    def _refuse(self, node: int | None, reason: str, client: int | None = None, *, tell: bool = False) -> None:
        """Write a refusal to the journal, once for each node and reason, and with `tell` let the node know it."""
        shown = printable(reason, REASON_CHARACTERS).removesuffix(".")
        if (node or 0, shown) not in self._refusals:
            self._refusals[node or 0, shown] = None
            self._journal({"event": "refused node", "node": str(node), "client": client, "reason": shown})
            _log.warning("node %s was refused: %s", node, shown)
        key = (node or 0, self._transport.nodes().get(node or 0, ""), shown)
        if tell and node is not None and key not in self._told:
            self._told.add(key)
            self._transport.send([Request("refused", node, own_protocol() | {"reason": shown})], _TELLING_SECONDS)

    def _too_few(self, seconds: float, missing: list[int], wanted: int) -> RunFailed:
        refused = [f"Node {node} was refused: {reason}." for node, reason in self._refusals][:_MAX_LISTED]
        enough = "" if wanted == self._num_clients else f" The run begins with {wanted} clients."
        return RunFailed(
            f"after {seconds:.0f} s there is no node for client(s) {_listed(missing)} of {self._num_clients}.{enough} "
            f"{' '.join((*refused, ''))}Start their nodes, or lower federation.num_clients, and start again."
        )


def _listed(clients: list[int]) -> str:
    return ", ".join(str(client) for client in clients[:_MAX_LISTED]) + (", …" if len(clients) > _MAX_LISTED else "")
