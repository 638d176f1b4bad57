"""Errors of a node: the code that leaves the node, and the text that the coordinator shows for the code.

The words of the error itself go into the log of the node. They may hold paths or data, and they tell the operator of
the node what to do; nobody else needs them.
"""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from fedblade.core.errors import FedbladeError, Misconfigured, NonFinite
from fedblade.core.untrusted_text import short_repr
from fedblade.engines.nodes import own_protocol, protocol_difference

PROTOCOL = "protocol"
"""The code of a node that speaks another protocol; its text is made from the numbers in the reply."""
_logger = logging.getLogger("fedblade.flower")
_LOG = "The log of the node says more"
TEXTS: Mapping[str, str] = {
    "other app": "its operator has pinned another app",
    "own parts": f"its operator does not allow own parts of the app, or their files are missing. {_LOG}",
    "not pinned": "its operator has pinned an app with another configuration",
    "clients": f"its configuration does not say for which clients it speaks. {_LOG}",
    "outside": "it speaks for a client that the run does not have",
    "foreign": "it does not speak for the client that was asked",
    "no data": 'it has no data of its own, and the run expects them (flower.data = "nodes")',
    "own data": 'it has data of its own, and the run gives every client a share of its data (flower.data = "shares")',
    "shared data": "it has data of its own and speaks for several clients, who would all train on them",
    "data": f"it cannot read its data, or the data do not fit the run. {_LOG}",
    "setup": f"it cannot set the run up with its parts, its device or its data. {_LOG}",
    "other model": "the model that it was sent has other parameters than its own",
    "other samples": "its samples have changed since the run began",
    "other frozen layers": "its frozen layers differ from those it had when it was greeted",
    "unknown metric": "it does not know a metric of the run",
    "unknown exchange": "it does not know an exchange of the run",
    "lost model": "the personal model of its client is gone from its folder",
    "disk": f"it cannot write to its folder. {_LOG}",
    "diverged": "a loss or a parameter of its client became NaN or infinite",
    "refused": f"it cannot do what it was asked. {_LOG}",
    "failed": f"it failed. {_LOG}",
}
"""What the coordinator shows for each code but `PROTOCOL`."""


class NodeError(Misconfigured):
    """An error of a node. Only its `code`, `PROTOCOL` or a key of `TEXTS`, leaves the node."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@contextlib.contextmanager
def failing_with(code: str) -> Iterator[None]:
    """Give a code to every error of this library that has none yet."""
    try:
        yield
    except (NodeError, NonFinite):
        raise
    except FedbladeError as error:
        raise NodeError(code, str(error)) from error


def error_facts(error: Exception) -> dict[str, Any]:
    """Log an error in its own words, and return the facts of the reply, which has a code in their place."""
    if isinstance(error, FedbladeError):
        _logger.warning("request refused: %s", error, exc_info=error)
    else:
        _logger.error("request failed", exc_info=error)
    match error:
        case NodeError():
            code = error.code
        case NonFinite():
            code = "diverged"
        case FedbladeError():
            code = "refused"
        case _:
            code = "failed"
    return {"error": code, **own_protocol()}


def error_text(facts: Mapping[str, Any]) -> str:
    """What the coordinator shows for such facts; it does not trust them."""
    code = facts.get("error")
    text = TEXTS.get(code) if isinstance(code, str) else None
    if code == PROTOCOL:
        text = protocol_difference(facts, "it", "the coordinator")
    return text or f"it failed with the code {short_repr(code)}, which this coordinator does not know"
