"""A node fetches the pieces of messages to itself, and no others.

Flower names a piece by the digest of its bytes, and hands it to every node that knows the name. A node could therefore
try out what another node has just sent, as long as that is a small number: how many samples it has, for example.
"""

from collections.abc import Callable
from typing import Any

from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse
from flwr.supercore.utils import uint64_to_int64
from sqlalchemy import text

_ADDRESSED = text(
    "WITH RECURSIVE piece(name) AS ("
    "SELECT message_id FROM message_ins WHERE dst_node_id = :node "
    "UNION SELECT child_id FROM object_children JOIN piece ON parent_id = name"
    ") SELECT name FROM piece"
)


def own_pieces_only(pull: Callable[..., PullObjectResponse]) -> Callable[..., PullObjectResponse]:
    """Flower's answer to a node that fetches a piece; a piece of another node's message counts as missing."""
    addressed: dict[int, frozenset[str]] = {}

    def pull_own(request: PullObjectRequest, state: Any) -> PullObjectResponse:
        node, name = request.node.node_id, request.object_id
        if name not in addressed.get(node, ()):
            # A piece that was a node's own once may stay in the set: the node has its bytes already.
            addressed[node] = _addressed_to(node, state)
        if name not in addressed[node]:
            return PullObjectResponse(object_found=False, object_available=False)
        return pull(request=request, state=state)

    return pull_own


def _addressed_to(node: int, state: Any) -> frozenset[str]:
    """The names of all pieces of the messages that wait for a node."""
    with state.session() as session:
        return frozenset(session.scalars(_ADDRESSED, {"node": uint64_to_int64(node)}))
