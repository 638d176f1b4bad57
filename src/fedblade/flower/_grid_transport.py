"""Requests and replies as messages through Flower's grid."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import httpx
from flwr.serverapp import Grid

from fedblade.engines.nodes import Reply, Request, SizeLimit
from fedblade.flower._flwr_internals.expired_requests import throw_away
from fedblade.flower._flwr_internals.limited_pulls import TooManyBytes, messages_of_at_most
from fedblade.flower._messages import largest_message, seconds_valid, to_message, to_reply

_FRESH_SECONDS = 1.0
"""How old the list of nodes may be."""
_AT_A_TIME = 4
"""Messages that are sent together; only these are in memory at a time, however large the cohort is."""


@dataclass(frozen=True)
class _Asked:
    """A request that was sent to a node; how long its reply counts, and how long the SuperLink hands it out."""

    node: int
    counts_until: float
    ends_at: float


class GridTransport:
    """Transports requests and replies as messages of a Flower run."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._nodes: dict[int, str] = {}
        self._seen = float("-inf")
        self._asked: dict[str, _Asked] = {}

    def nodes(self) -> Mapping[int, str]:
        """The nodes that are online; a node that was activated again is another incarnation."""
        if time.monotonic() - self._seen > _FRESH_SECONDS:
            details = getattr(self._grid, "get_nodes", None)
            if details is None:
                self._nodes = {int(node): "" for node in self._grid.get_node_ids()}
            else:
                self._nodes = {int(node.node_id): str(node.last_activated_at) for node in details()}
            self._seen = time.monotonic()
        return self._nodes

    def send(self, requests: Sequence[Request], seconds: float) -> list[str | None]:
        """Push messages; None stands for a message that Flower did not take."""
        self._forget_expired()
        times = time.monotonic() + seconds, time.monotonic() + seconds_valid(seconds)
        sent: list[str | None] = []
        for start in range(0, len(requests), _AT_A_TIME):
            batch = requests[start : start + _AT_A_TIME]
            messages = [to_message(request, seconds) for request in batch]
            ids: list[str | None] = list(self._grid.push_messages(messages))
            ids = ids if len(ids) == len(batch) else [None] * len(batch)
            pairs = zip(ids, batch, strict=True)
            self._asked |= {id_: _Asked(request.node, *times) for id_, request in pairs if id_ is not None}
            sent += ids
        return sent

    def receive(self, waiting: Collection[str], limit: SizeLimit) -> Iterator[Reply]:
        """Pull the replies that have arrived, one message at a time.

        Flower forgets a message when it is pulled. If several messages were pulled together and one of them could not
        be unpacked, the others would be lost too.
        """
        for id_ in filter(self._asked.__contains__, waiting):
            yield from self._pull_reply(id_, limit)

    def _pull_reply(self, id_: str, limit: SizeLimit) -> list[Reply]:
        """The reply to a request, if it has arrived. The SuperLink and the front make sure that its node sent it."""
        node = self._asked[id_].node
        most = largest_message(limit)
        try:
            with messages_of_at_most(most):
                return [to_reply(message, id_, node, limit) for message in self._grid.pull_messages([id_])]
        except TooManyBytes:
            return [
                Reply(id_, node, error=f"it has more than {most} bytes, which no answer has; the rest was not fetched")
            ]
        except httpx.HTTPError:
            raise
        except Exception as error:  # a node may send anything, and Flower unpacks it
            return [Reply(id_, node, error=f"Flower cannot unpack it ({type(error).__name__})")]

    def _forget_expired(self) -> None:
        """Throw away replies that no longer count, and requests that the SuperLink no longer hands out."""
        now = time.monotonic()
        ended = [id_ for id_, asked in self._asked.items() if asked.ends_at < now]
        late = [id_ for id_, asked in self._asked.items() if asked.counts_until < now <= asked.ends_at]
        throw_away(self._grid, late, ended)
        for id_ in ended:
            del self._asked[id_]
