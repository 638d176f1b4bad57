"""Requests to clients on other machines and what they answer, whatever carries them."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from fedblade.core.tree import Tree

Kind = Literal["hello", "train", "collect", "tune", "measure"]
_PAUSE = 0.1
"""Seconds between two looks for answers."""


@dataclass(frozen=True)
class Request:
    """What a node is asked to do: plain facts as JSON can hold them, and tensors."""

    kind: Kind
    node: int
    facts: Mapping[str, Any]
    tensors: Tree = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """What came back: the id of the request it answers, the facts and tensors, or the reason why there are none.

    `node` is None where the carrier answers in place of a node that is gone.
    """

    request: str
    node: int | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    tensors: Tree = field(default_factory=dict)
    error: str | None = None


class Post(Protocol):
    """Carries requests and replies. A node that stops may come back as another incarnation, which knows no request."""

    def nodes(self) -> Mapping[int, str]:
        """The nodes that can be reached now, each with the name of its incarnation."""

    def send(self, requests: Sequence[Request]) -> list[str | None]:
        """Send requests and give the id of each, None where one could not be sent."""

    def receive(self, waiting: Collection[str]) -> Iterable[Reply]:
        """The replies to these requests that have arrived and were not given before, best made one by one."""


@dataclass
class _Sent:
    request: Request
    incarnation: str | None


def replies(post: Post, requests: Sequence[Request], seconds: float) -> Iterator[tuple[Request | None, Reply]]:
    """Send requests and give each with its reply as it arrives, until all are there or the time is over.

    A node that stopped and came back has lost what it was asked, so it is asked again. What answers no request that is
    open (another round's, or the same twice), or comes from another node than was asked, is given as an error without
    a request, and the request stays open.
    """
    waiting = _send(post, requests)
    deadline = time.monotonic() + seconds
    went_out = {id(sent.request) for sent in waiting.values()}
    for request in requests:
        if id(request) not in went_out:
            yield request, Reply("", request.node, error="the request could not be sent")
    while waiting:
        for reply in post.receive(list(waiting)):
            stray = _stray(reply, waiting)
            if stray is None:
                yield waiting.pop(reply.request).request, reply
            else:
                yield None, replace(reply, facts={}, tensors={}, error=stray)
        left = deadline - time.monotonic()
        if not waiting or left <= 0:
            return
        _ask_again(post, waiting)
        time.sleep(min(_PAUSE, left))


def _stray(reply: Reply, waiting: Mapping[str, _Sent]) -> str | None:
    """Why a reply is none to what is open, or None."""
    sent = waiting.get(reply.request)
    if sent is None:
        return "it answers nothing that is open: another round's request, or one that was answered before"
    if reply.node not in (None, sent.request.node):
        return f"it answers what node {sent.request.node} was asked"
    return None


def _send(post: Post, requests: Sequence[Request]) -> dict[str, _Sent]:
    there = post.nodes()
    ids = post.send(requests)
    return {
        id_: _Sent(request, there.get(request.node))
        for id_, request in zip(ids, requests, strict=True)
        if id_ is not None
    }


def _ask_again(post: Post, waiting: dict[str, _Sent]) -> None:
    """Repeat the requests of nodes that have come back since they were asked."""
    there = post.nodes()
    back = [id_ for id_, sent in waiting.items() if there.get(sent.request.node, sent.incarnation) != sent.incarnation]
    if back:
        again = [waiting.pop(id_).request for id_ in back]
        waiting |= _send(post, again)
