"""Requests to nodes and their replies, whatever transports them."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from fedblade.core.tree import Tree, tree_bytes

Kind = Literal["hello", "refused", "train", "collect", "tune", "measure"]
_PAUSE = 0.1
"""Seconds between two looks for replies."""


@dataclass(frozen=True)
class Request:
    """What a node is asked to do: facts as plain values for JSON, and tensors."""

    kind: Kind
    node: int
    facts: Mapping[str, Any]
    tensors: Tree = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """The reply to the request with the id `request`: facts and tensors, or an error.

    `node` is None if the transport replies in place of a node that is gone.
    """

    request: str
    node: int | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    tensors: Tree = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class SizeLimit:
    """How many arrays and bytes the tensors of a reply may have, and characters its facts; no larger one is opened."""

    arrays: int
    bytes: int
    facts: int = 1_000_000

    @staticmethod
    def of(tensors: Tree) -> "SizeLimit":
        """The limit that these tensors just meet."""
        return SizeLimit(len(tensors), tree_bytes(tensors))


class Transport(Protocol):
    """Transports requests and replies.

    A node that stops may come back as another incarnation, which knows nothing of earlier requests.
    """

    def nodes(self) -> Mapping[int, str]:
        """The nodes that can be reached now, each with the name of its incarnation."""

    def send(self, requests: Sequence[Request], seconds: float) -> list[str | None]:
        """Send requests whose replies count for `seconds`; the id of each request, None if it could not be sent."""

    def receive(self, waiting: Collection[str], limit: SizeLimit) -> Iterable[Reply]:
        """The replies to these requests that have newly arrived, best opened one at a time.

        A reply above the size limit is returned as an error.
        """


@dataclass
class _SentRequest:
    request: Request
    incarnation: str | None


def replies(
    transport: Transport, requests: Sequence[Request], seconds: float, limit: SizeLimit
) -> Iterator[tuple[Request | None, Reply]]:
    """Send requests and yield each with its reply as the reply arrives, until all are there or the time is over.

    A node that stopped and came back has lost its request and gets the request again. A reply to no open request (of
    another round, or a second reply), or from a node that was not asked, is yielded as an error with None as its
    request; the request stays open. A reply above the size limit is not opened.
    """
    deadline = time.monotonic() + seconds
    waiting, unsent = _send(transport, requests, seconds)
    yield from unsent
    while waiting:
        for reply in transport.receive(list(waiting), limit):
            mismatch = _mismatch(reply, waiting)
            if mismatch is None:
                yield waiting.pop(reply.request).request, reply
            else:
                yield None, replace(reply, facts={}, tensors={}, error=mismatch)
        left = deadline - time.monotonic()
        if not waiting or left <= 0:
            return
        yield from _send_again(transport, waiting, left)
        time.sleep(max(0.0, min(_PAUSE, deadline - time.monotonic())))


def _mismatch(reply: Reply, waiting: Mapping[str, _SentRequest]) -> str | None:
    """Why a reply belongs to no open request, or None."""
    sent = waiting.get(reply.request)
    if sent is None:
        return "it answers no open request: that of another round, or one that was answered before"
    if reply.node not in (None, sent.request.node):
        return f"it answers a request to node {sent.request.node}"
    return None


_Unsent = list[tuple[Request, Reply]]


def _send(transport: Transport, requests: Sequence[Request], seconds: float) -> tuple[dict[str, _SentRequest], _Unsent]:
    """The requests that were sent, by their ids, and an error for each of the others."""
    incarnations = transport.nodes()
    ids = transport.send(requests, seconds)
    sent: dict[str, _SentRequest] = {}
    unsent: _Unsent = []
    for id_, request in zip(ids, requests, strict=True):
        if id_ is None:
            unsent.append((request, Reply("", request.node, error="the request could not be sent")))
        else:
            sent[id_] = _SentRequest(request, incarnations.get(request.node))
    return sent, unsent


def _send_again(transport: Transport, waiting: dict[str, _SentRequest], seconds: float) -> _Unsent:
    """Repeat the requests of nodes that came back meanwhile; an error for each that could not be sent."""
    incarnations = transport.nodes()
    lost = [
        id_
        for id_, sent in waiting.items()
        if incarnations.get(sent.request.node, sent.incarnation) != sent.incarnation
    ]
    if not lost:
        return []
    sent, unsent = _send(transport, [waiting.pop(id_).request for id_ in lost], seconds)
    waiting |= sent
    return unsent
