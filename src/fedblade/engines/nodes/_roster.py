"""Which node speaks for which client."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from fedblade.core.errors import RunFailed
from fedblade.engines.nodes._hello import Holding, Refused, holdings_of
from fedblade.engines.nodes._in_short import printable
from fedblade.engines.nodes._post import Post, Reply, Request, Size, replies

Journal = Callable[[Mapping[str, Any]], None]
"""Takes notice of what a user should be able to look up later."""
_GREETING_SECONDS, _AGAIN_SECONDS = 120.0, 10.0
"""How long a greeting is waited for, and that of a node which was silent before."""
_PAUSE = 0.5
_NAMED = 8
"""Clients or nodes that a message lists."""
LONGEST = 500
"""Characters of what a node says that are kept."""


class Roster:
    """Nodes say for which clients they speak, and what each of these holds, when they are greeted.

    A client belongs to the first node that claims it. Another one takes its place only when that node is gone, and only
    with the same samples once the run has begun. A node that comes back with others speaks for that client no longer.
    `greeting` are the facts that every node needs to answer.
    """

    def __init__(self, post: Post, greeting: Mapping[str, Any], num_clients: int, journal: Journal) -> None:
        self._post, self._greeting, self._num_clients, self._journal = post, greeting, num_clients, journal
        self._known: dict[int, str] = {}
        self._nodes: dict[int, int] = {}
        self._refused: dict[tuple[int, str], None] = {}
        self._entered: set[int] = set()
        self._silent: set[int] = set()
        self._begun = False
        self.held: dict[int, Holding] = {}

    def gather(self, seconds: float) -> None:
        """Wait until all clients have a node; two nodes for one client are an error."""
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
                refused = [f"Node {node} was refused: {reason}." for node, reason in self._refused][:_NAMED]
                raise RunFailed(
                    f"after {seconds:.0f} s there is no node for client(s) {_some(missing)} of {self._num_clients}. "
                    f"{' '.join((*refused, ''))}Start their nodes, or lower federation.num_clients, and start again."
                )
            time.sleep(_PAUSE)

    def node_of(self, client: int) -> int | None:
        """The node of a client, if it can be reached."""
        node = self._nodes.get(client)
        return node if node in self._post.nodes() else None

    def refresh(self, seconds: float) -> None:
        """Greet nodes that are new or have come back; what is refused does not stop a run that has begun."""
        self._greet(seconds)

    def _greet(self, seconds: float) -> list[str]:
        """Greet whoever was not yet, and give what was said of clients that belong to another node."""
        there = dict(self._post.nodes())
        missing = any(self._nodes.get(client) not in there for client in range(self._num_clients))
        new = [node for node, incarnation in there.items() if self._known.get(node) != incarnation]
        new += [node for node in sorted(self._silent & self._known.keys()) if missing and node in there]
        requests = [Request("hello", node, self._greeting) for node in new]
        contested: list[str] = []
        # A run that has begun greets a node once, so that one which never answers cannot hold up every round; again
        # only one that spoke for clients before and now fails, and for a moment the silent ones if a client is missing.
        again, silent = set() if self._begun else set(new), set(new)
        longest = _GREETING_SECONDS if silent - self._silent else _AGAIN_SECONDS
        for request, reply in replies(self._post, requests, min(seconds, longest), Size(0, 0)):
            silent.discard(-1 if request is None else request.node)
            if request is None:
                self._refuse(reply.node, reply.error or "")
            elif reply.node is None or not reply.request:
                again.add(request.node)
                self._refuse(request.node, reply.error or "")
            elif (entered := self._enter(request.node, reply, there)) is not None:
                again.discard(request.node)
                contested += entered
            elif request.node in self._entered:
                again.add(request.node)
        for node in silent if self._begun else ():
            # What it holds now is not known.
            self._refuse(node, "it does not answer its greeting")
            self._leave(node, list(self._nodes))
        self._silent = (self._silent - set(new)) | silent
        self._known |= {node: there[node] for node in new if node not in again}
        return contested

    def _enter(self, node: int, reply: Reply, there: Collection[int]) -> list[str] | None:
        """Put the clients of a node down: what was refused of them, or None where nothing can be believed."""
        try:
            if reply.error is not None:
                raise Refused(reply.error)
            holdings = holdings_of(reply.facts, self._num_clients, int(self._greeting.get("num_classes", 0)))
        except Refused as refused:
            self._refuse(node, str(refused))
            self._leave(node, list(self._nodes))
            return None
        self._leave(node, [client for client in self._nodes if client not in holdings])
        self._entered.add(node)
        contested = []
        for client, holding in holdings.items():
            owner = self._nodes.get(client)
            if owner is not None and owner != node and owner in there:
                contested.append(f"node {node} claims client {client}, for which node {owner} speaks")
                self._refuse(node, contested[-1], client)
            elif self._begun and holding != self.held[client]:
                self._refuse(node, f"client {client} holds other samples than when the run began", client)
                self._leave(node, [client])
            else:
                self._nodes[client] = node
                self.held[client] = holding
        return contested

    def _leave(self, node: int, clients: Iterable[int]) -> None:
        """A node speaks no longer for those of the clients that it spoke for."""
        for client in clients:
            if self._nodes.get(client) == node:
                del self._nodes[client]

    def _refuse(self, node: int | None, reason: str, client: int | None = None) -> None:
        """Note a reason, once for each node."""
        short = printable(reason, LONGEST).removesuffix(".")
        if (node or 0, short) not in self._refused:
            self._refused[node or 0, short] = None
            self._journal({"event": "refused node", "node": str(node), "client": client, "reason": short})


def _some(clients: Iterable[int]) -> str:
    listed = list(clients)
    return ", ".join(str(client) for client in listed[:_NAMED]) + (", …" if len(listed) > _NAMED else "")
