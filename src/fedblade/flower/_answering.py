"""The way of a request on a node: the protocol, refusals, the approval of the request, and then the node itself."""

import logging
from collections.abc import Callable

from fedblade.core.tree import Tree
from fedblade.core.untrusted_text import REASON_CHARACTERS, printable
from fedblade.engines.nodes import protocol_difference
from fedblade.flower._last_answer import Answer
from fedblade.flower._node import Node
from fedblade.flower._node_errors import PROTOCOL, NodeError
from fedblade.flower._node_setup import Facts

_log = logging.getLogger(__name__)


def answer_request(
    kind: str, facts: Facts, tensors: Tree, make_node: Callable[[], Node], check: Callable[[Facts], None]
) -> Answer:
    """The answer of a node to a request. An error says why there is none.

    `check` refuses the facts of a request by raising an error. Two things come before it, because they need neither the
    node nor an approved configuration: another protocol is refused, and the reason why the coordinator has refused this
    node is logged.
    """
    difference = protocol_difference(facts, "the coordinator", "this node")
    if difference is not None:
        raise NodeError(PROTOCOL, f"{difference}. Install a release of fedblade with the coordinator's protocol.")
    if kind == "refused":
        reason = printable(str(facts.get("reason")), REASON_CHARACTERS)
        _log.error("the coordinator has refused this node: %s", reason)
        return {}, {}
    check(facts)
    return make_node().answer(kind, facts, tensors)
