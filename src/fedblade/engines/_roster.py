"""Which node speaks for which client."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fedblade.core.errors import RunFailed
from fedblade.engines._post import Post, Reply, Request, replies

Journal = Callable[[Mapping[str, Any]], None]
"""Takes notice of what a user should be able to look up later."""
_GREETING_SECONDS = 120.0
_PAUSE = 0.5
_NAMED = 8
"""Clients or nodes that a message lists."""


class Roster:
    """Nodes say for which clients they speak, and what each of these holds, when they are greeted.

    A client belongs to the first node that claims it. Another one takes its place only when that node is gone.
    `greeting` are the facts that every node needs to answer.
    """

    def __init__(self, post: Post, greeting: Mapping[str, Any], journal: Journal) -> None:
        self._post, self._greeting, self._journal = post, greeting, journal
        self._known: dict[int, str] = {}
        self._nodes: dict[int, int] = {}
        self.held: dict[int, Mapping[str, Any]] = {}

    def gather(self, expected: int, seconds: float) -> None:
        """Wait until clients 0 to `expected` - 1 all have a node; refuse two nodes for one client."""
        deadline = time.monotonic() + seconds
        while True:
            contested = self.refresh()
            if contested:
                raise RunFailed(f"{contested[0]}. Give every node clients of its own, then start again.")
            missing = [client for client in range(expected) if client not in self._nodes]
            if not missing:
                return
            if time.monotonic() > deadline:
                raise RunFailed(
                    f"after {seconds:.0f} s there is no node for client(s) {_some(missing)} of {expected}. "
                    f"Start their nodes, or lower federation.num_clients, and start again."
                )
            time.sleep(_PAUSE)

    def node_of(self, client: int) -> int | None:
        """The node of a client, if it can be reached."""
        node = self._nodes.get(client)
        return node if node in self._post.nodes() else None

    def refresh(self) -> list[str]:
        """Greet nodes that are new or have come back; gives what was refused."""
        there = self._post.nodes()
        new = [node for node, incarnation in there.items() if self._known.get(node) != incarnation]
        refused: list[str] = []
        for request, reply in replies(self._post, [self._hello(node) for node in new], _GREETING_SECONDS):
            if reply.error is not None:
                self._note(request.node, reply.error)
                continue
            self._known[request.node] = there[request.node]
            refused += self._enter(request.node, reply, there)
        return refused

    def _hello(self, node: int) -> Request:
        return Request("hello", node, self._greeting)

    def _enter(self, node: int, reply: Reply, there: Iterable[int]) -> list[str]:
        """Put the clients of a node down; gives what was refused."""
        refused = []
        held = reply.facts.get("clients")
        if not isinstance(held, Mapping):
            return [self._note(node, "it does not say for which clients it speaks")]
        for key, facts in held.items():
            client, owner = int(key), self._nodes.get(int(key))
            if owner is not None and owner != node and owner in set(there):
                reason = f"node {node} claims client {client}, for which node {owner} speaks"
                refused.append(self._note(node, reason, client))
                continue
            self._nodes[client] = node
            self.held[client] = facts
        return refused

    def _note(self, node: int, reason: str, client: int | None = None) -> str:
        self._journal({"event": "refused node", "node": str(node), "client": client, "reason": reason})
        return reason


def _some(clients: list[int]) -> str:
    listed = ", ".join(str(client) for client in clients[:_NAMED])
    return listed + (", …" if len(clients) > _NAMED else "")
