"""Requests to nodes and their replies, whatever transports them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from fedblade.core.tree import Tree, tree_bytes

Kind = Literal["hello", "refused", "train", "collect", "tune", "measure"]


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

    `node` is None if the transport replies in place of a node that is gone. `is_repeated` marks a second reply to one
    request, or a reply to a request that is closed.
    """

    request: str
    node: int | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    tensors: Tree = field(default_factory=dict)
    error: str | None = None
    is_repeated: bool = False


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
