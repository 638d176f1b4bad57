"""Requests to clients on other machines and what they answer, whatever carries them."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from fedblade.core.tree import Tree, tree_bytes

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


@dataclass(frozen=True)
class Size:
    """How many arrays and bytes the tensors of a reply may have; what has more is not even opened."""

    arrays: int
    bytes: int

    @staticmethod
    def of(tensors: Tree) -> "Size":
        """The size of tensors."""
        return Size(len(tensors), tree_bytes(tensors))


class Post(Protocol):
    """Carries requests and replies. A node that stops may come back as another incarnation, which knows no request."""

    def nodes(self) -> Mapping[int, str]:
        """The nodes that can be reached now, each with the name of its incarnation."""

    def send(self, requests: Sequence[Request], seconds: float) -> list[str | None]:
        """Send requests that are answered within `seconds` or in vain; the id of each, None where it could not be."""

    def receive(self, waiting: Collection[str], largest: Size) -> Iterable[Reply]:
        """The replies to these requests that have arrived and were not given before, best made one by one.

        One that is larger than `largest` is given as an error.
        """


@dataclass
class _Sent:
    request: Request
    incarnation: str | None


def replies(
    post: Post, requests: Sequence[Request], seconds: float, largest: Size
) -> Iterator[tuple[Request | None, Reply]]:
    """Send requests and give each with its reply as it arrives, until all are there or the time is over.

    A node that stopped and came back has lost what it was asked, so it is asked again. What answers no request that is
    open (another round's, or the same twice), or comes from another node than was asked, is given as an error without
    a request, and the request stays open. No reply larger than `largest` is opened.
    """
    deadline = time.monotonic() + seconds
    waiting, unsent = _send(post, requests, seconds)
    yield from unsent
    while waiting:
        for reply in post.receive(list(waiting), largest):
            stray = _stray(reply, waiting)
            if stray is None:
                yield waiting.pop(reply.request).request, reply
            else:
                yield None, replace(reply, facts={}, tensors={}, error=stray)
        left = deadline - time.monotonic()
        if not waiting or left <= 0:
            return
        yield from _ask_again(post, waiting, left)
        time.sleep(max(0.0, min(_PAUSE, deadline - time.monotonic())))


def _stray(reply: Reply, waiting: Mapping[str, _Sent]) -> str | None:
    """Why a reply is none to what is open, or None."""
    sent = waiting.get(reply.request)
    if sent is None:
        return "it answers nothing that is open: another round's request, or one that was answered before"
    if reply.node not in (None, sent.request.node):
        return f"it answers what node {sent.request.node} was asked"
    return None


_Unsent = list[tuple[Request, Reply]]


def _send(post: Post, requests: Sequence[Request], seconds: float) -> tuple[dict[str, _Sent], _Unsent]:
    """The requests that went out, by their ids, and an error for each of the others."""
    there = post.nodes()
    ids = post.send(requests, seconds)
    sent: dict[str, _Sent] = {}
    unsent: _Unsent = []
    for id_, request in zip(ids, requests, strict=True):
        if id_ is None:
            unsent.append((request, Reply("", request.node, error="the request could not be sent")))
        else:
            sent[id_] = _Sent(request, there.get(request.node))
    return sent, unsent


def _ask_again(post: Post, waiting: dict[str, _Sent], seconds: float) -> _Unsent:
    """Repeat the requests of nodes that have come back since they were asked; those that could not be."""
    there = post.nodes()
    back = [id_ for id_, sent in waiting.items() if there.get(sent.request.node, sent.incarnation) != sent.incarnation]
    if not back:
        return []
    sent, unsent = _send(post, [waiting.pop(id_).request for id_ in back], seconds)
    waiting |= sent
    return unsent
