"""Requests that wait for their replies, for as long as the replies count."""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from fedblade.engines.nodes._transport import Reply, Request, SizeLimit, Transport

_PAUSE = 0.1
"""Seconds between two looks for replies."""
Answered = Iterator[tuple[Request | None, Reply]]


@dataclass(frozen=True)
class _SentRequest:
    request: Request
    incarnation: str | None
    valid_until: float


class OpenRequests:
    """Sends requests and gives their replies as these arrive.

    A request is open until it is answered or closed, also when nobody waits for it any more: a late reply is found
    when somebody looks for replies again. A node that stopped and came back has lost its request and gets it again. No
    reply above the size limit is opened.
    """

    def __init__(self, transport: Transport, limit: SizeLimit) -> None:
        self._transport, self._limit = transport, limit
        self._open: dict[str, _SentRequest] = {}
        self._closed: dict[str, int] = {}

    def __iter__(self) -> Iterator[Request]:
        """The open requests."""
        return iter([sent.request for sent in self._open.values()])

    def close_expired(self) -> None:
        """Do not wait any more for requests that are no longer valid."""
        now = time.monotonic()
        self.close([sent.request for sent in self._open.values() if sent.valid_until <= now])

    def close(self, requests: Collection[Request]) -> None:
        """Do not wait for these requests any more; a reply to one of them is a repeated reply."""
        ids = {id(request) for request in requests}
        for sent_id in [sent_id for sent_id, sent in self._open.items() if id(sent.request) in ids]:
            self._closed[sent_id] = self._open.pop(sent_id).request.node

    def replies(
        self, requests: Sequence[Request], seconds: float, valid_seconds: float, awaited: Collection[Request] = ()
    ) -> Answered:
        """Send requests that are valid for `valid_seconds`, and yield every open request with its reply as it arrives.

        Ends after `seconds`, or when these requests and the `awaited` open ones are answered. The request is None for a
        reply that is repeated, answers no open request, or comes from a node that was not asked.
        """
        deadline = time.monotonic() + seconds
        yield from self._send(requests, time.monotonic() + valid_seconds)
        ids = {id(request) for request in (*requests, *awaited)}
        while True:
            yield from self._arrived()
            if time.monotonic() >= deadline or not any(id(sent.request) in ids for sent in self._open.values()):
                return
            yield from self._send_again()
            time.sleep(max(0.0, min(_PAUSE, deadline - time.monotonic())))

    def _arrived(self) -> Answered:
        for reply in self._transport.receive(list(self._open), self._limit) if self._open else ():
            mismatch, sent = self._mismatch(reply), self._open.get(reply.request)
            if sent is None or mismatch is not None:
                repeated = self._closed.get(reply.request) == reply.node
                yield None, replace(reply, facts={}, tensors={}, error=mismatch, is_repeated=repeated)
            else:
                self._closed[reply.request] = self._open.pop(reply.request).request.node
                yield sent.request, reply

    def _mismatch(self, reply: Reply) -> str | None:
        """Why a reply belongs to no open request, or None."""
        sent = self._open.get(reply.request)
        if sent is None:
            closed = reply.request in self._closed
            return "its request is answered or closed" if closed else "it answers no request of this round"
        if reply.node not in (None, sent.request.node):
            return f"it answers a request to node {sent.request.node}"
        return None

    def _send(self, requests: Sequence[Request], valid_until: float) -> Answered:
        """Send requests; yields an error for each that could not be sent."""
        incarnations = self._transport.nodes()
        ids = self._transport.send(requests, valid_until - time.monotonic()) if requests else []
        for sent_id, request in zip(ids, requests, strict=True):
            if sent_id is None:
                yield request, Reply("", request.node, error="the request could not be sent")
            else:
                self._open[sent_id] = _SentRequest(request, incarnations.get(request.node), valid_until)

    def _send_again(self) -> Answered:
        """Repeat the requests of nodes that came back meanwhile; an error for each that could not be sent."""
        incarnations = self._transport.nodes()
        lost = [
            sent_id
            for sent_id, sent in self._open.items()
            if incarnations.get(sent.request.node, sent.incarnation) != sent.incarnation
        ]
        for sent in [self._open.pop(sent_id) for sent_id in lost]:
            yield from self._send([sent.request], sent.valid_until)
