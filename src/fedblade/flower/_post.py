"""Requests and replies through Flower's grid."""

import time
from collections.abc import Collection, Mapping, Sequence

from flwr.serverapp import Grid

from fedblade.engines._post import Reply, Request
from fedblade.flower._messages import to_message, to_reply

_FRESH_SECONDS = 1.0
"""How old the list of nodes may be."""


class GridPost:
    """Carries requests by the messages of a Flower run."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._nodes: dict[int, str] = {}
        self._seen = float("-inf")

    def nodes(self) -> Mapping[int, str]:
        """The nodes that are online; one that was activated again is another incarnation."""
        if time.monotonic() - self._seen > _FRESH_SECONDS:
            details = getattr(self._grid, "get_nodes", None)
            if details is None:
                self._nodes = {int(node): "" for node in self._grid.get_node_ids()}
            else:
                self._nodes = {int(node.node_id): str(node.last_activated_at) for node in details()}
            self._seen = time.monotonic()
        return self._nodes

    def send(self, requests: Sequence[Request]) -> list[str | None]:
        """Push messages; Flower says which it could not take."""
        if not requests:
            return []
        ids = list(self._grid.push_messages([to_message(request) for request in requests]))
        return ids or [None] * len(requests)

    def receive(self, waiting: Collection[str]) -> list[Reply]:
        """Pull what has arrived."""
        return [to_reply(message) for message in self._grid.pull_messages(list(waiting))]
