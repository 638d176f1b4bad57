"""Requests and replies as messages of Flower's: tensors as arrays, facts as JSON in a config record."""

import json
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedblade.core.tree import Tree
from fedblade.engines.nodes import LONGEST, Reply, Request, Size, printable

_TENSORS, _FACTS, _JSON = "tensors", "facts", "json"
_MOST_FACTS = 10_000_000
"""Characters; the longest honest facts are a greeting's: the counts of all clients of a node."""
_HEADER = 512
"""Bytes that an array of few axes may have besides its numbers."""
_LEAST_SLACK = 60.0
_GONE = (3, 4, 5)
"""Flower's codes for a message, a reply or a node that is unavailable; others tell of an app that failed."""
MESSAGE_TYPE = "query.fedblade"
"""One kind of message for everything; the facts say what is asked."""


class _Oversized(Exception):
    """A message has more or larger arrays than an answer can have; the text says the sizes."""


def to_message(request: Request, seconds: float) -> Message:
    """A request as a message to its node. Flower forgets it some time after the `seconds` in which an answer counts.

    A reply lives no longer than its request, by the clock of the node, which may be ahead of the server's by as much as
    that time.
    """
    return Message(
        content=_content({"kind": request.kind, **request.facts}, request.tensors),
        dst_node_id=request.node,
        message_type=MESSAGE_TYPE,
        ttl=seconds + max(seconds, _LEAST_SLACK),
        group_id=str(request.facts.get("round", "")),
    )


def asked(message: Message) -> tuple[str, dict[str, Any], Tree]:
    """What a message asks: its kind, facts and tensors."""
    facts, tensors = _opened(message.content)
    return str(facts.pop("kind")), facts, tensors


def answer(message: Message, facts: dict[str, Any], tensors: Tree) -> Message:
    """The message that answers another."""
    return Message(content=_content(facts, tensors), reply_to=message)


def to_reply(message: Message, request: str, node: int, largest: Size) -> Reply:
    """What came back from the node that a request went to, or why nothing did.

    A message that cannot be read, or is larger than `largest`, is an error like any other. What it says of itself is
    not believed: whom it answers, and who sent it.
    """
    if message.has_error():
        said = f"Flower: {message.error.reason} (code {message.error.code})"
        return Reply(request, None if message.error.code in _GONE else node, error=printable(said, LONGEST))
    if message.metadata.reply_to_message_id != request:
        return Reply(request, node, error="it says that it answers another request")
    try:
        _check_size(message.content[_TENSORS], largest)
        facts, tensors = _opened(message.content)
    except _Oversized as error:
        return Reply(request, node, error=str(error))
    except Exception as error:  # whatever a hostile message raises must not stop the run
        return Reply(request, node, error=f"it cannot be read ({type(error).__name__})")
    return Reply(request, node, facts, tensors, printable(str(facts["error"]), LONGEST) if "error" in facts else None)


def _check_size(arrays: ArrayRecord, largest: Size) -> None:
    """Refuse arrays that are too many or too large while they are still the bytes that Flower has pulled."""
    size = sum(len(array.data) for array in arrays.values())
    if len(arrays) > largest.arrays or size > largest.bytes + _HEADER * len(arrays):
        raise _Oversized(
            f"it has {len(arrays)} arrays in {size} bytes; an answer has at most {largest.arrays} in {largest.bytes}"
        )


def _content(facts: dict[str, Any], tensors: Tree) -> RecordDict:
    arrays = {name: Array(leaf.detach().cpu().contiguous().numpy()) for name, leaf in tensors.items()}
    return RecordDict({_TENSORS: ArrayRecord(arrays), _FACTS: ConfigRecord({_JSON: json.dumps(facts)})})


def _opened(content: RecordDict) -> tuple[dict[str, Any], Tree]:
    """Facts and tensors of a message; no pickled array is ever loaded."""
    text = content[_FACTS][_JSON]
    if not isinstance(text, str) or len(text) > _MOST_FACTS:
        raise ValueError(f"facts are no text of at most {_MOST_FACTS} characters")
    # Cloned into torch's own memory: kernels round differently on buffers that are aligned differently.
    tensors = {name: torch.from_numpy(array.numpy()).clone() for name, array in content[_TENSORS].items()}
    return dict(json.loads(text)), tensors
