"""Requests and replies through Flower's grid."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence

import httpx
from flwr.serverapp import Grid

from fedblade.engines.nodes import Reply, Request, Size
from fedblade.flower._messages import to_message, to_reply

_FRESH_SECONDS = 1.0
"""How old the list of nodes may be."""
_AT_A_TIME = 4
"""Messages that are sent together, and so in memory together, whatever the size of the cohort."""


class GridPost:
    """Carries requests by the messages of a Flower run."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._nodes: dict[int, str] = {}
        self._seen = float("-inf")
        self._asked: dict[str, int] = {}

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

    def send(self, requests: Sequence[Request], seconds: float) -> list[str | None]:
        """Push messages; Flower says which it could not take."""
        sent: list[str | None] = []
        for start in range(0, len(requests), _AT_A_TIME):
            some = requests[start : start + _AT_A_TIME]
            ids: list[str | None] = list(self._grid.push_messages([to_message(each, seconds) for each in some]))
            ids = ids if len(ids) == len(some) else [None] * len(some)
            self._asked |= {id_: each.node for id_, each in zip(ids, some, strict=True) if id_ is not None}
            sent += ids
        return sent

    def receive(self, waiting: Collection[str], largest: Size) -> Iterator[Reply]:
        """Pull what has arrived, one message after another.

        Flower forgets messages that it has handed out, so one that cannot be unpacked would take along those that are
        pulled with it.
        """
        self._asked = {id_: self._asked[id_] for id_ in waiting}
        for id_ in waiting:
            yield from self._pulled(id_, largest)

    def _pulled(self, id_: str, largest: Size) -> list[Reply]:
        """The reply to a request, if there is one. That its node sent it is what the SuperLink has made sure of."""
        node = self._asked[id_]
        try:
            return [to_reply(message, id_, node, largest) for message in self._grid.pull_messages([id_])]
        except httpx.HTTPError:
            raise
        except Exception as error:  # Flower unpacks what a node has sent, which may be anything
            return [Reply(id_, node, error=f"Flower cannot unpack it ({type(error).__name__})")]
