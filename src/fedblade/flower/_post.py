"""Requests and replies through Flower's grid."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from flwr.serverapp import Grid

from fedblade.engines.nodes._post import Reply, Request
from fedblade.flower._messages import to_message, to_reply

_FRESH_SECONDS = 1.0
"""How old the list of nodes may be."""
_AT_A_TIME = 4
"""Messages that are sent or pulled together, and so in memory together, whatever the size of the cohort."""
_Item = TypeVar("_Item")


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
        sent: list[str | None] = []
        for some in _pieces(requests):
            ids: list[str | None] = list(self._grid.push_messages([to_message(request) for request in some]))
            sent += ids or [None] * len(some)
        return sent

    def receive(self, waiting: Collection[str]) -> Iterator[Reply]:
        """Pull what has arrived, and open one message after another."""
        for some in _pieces(list(waiting)):
            for message in self._grid.pull_messages(some):
                yield to_reply(message)


def _pieces(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    return (items[start : start + _AT_A_TIME] for start in range(0, len(items), _AT_A_TIME))
