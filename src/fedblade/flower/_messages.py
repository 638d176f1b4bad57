"""Requests and replies as messages of Flower's: tensors as arrays, facts as JSON in a config record."""

import json
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedblade.core.tree import Tree
from fedblade.engines.nodes._post import Reply, Request

_TENSORS, _FACTS, _JSON = "tensors", "facts", "json"
_MOST_FACTS = 10_000_000
"""Characters; the longest honest facts are a greeting's: the counts of all clients of a node."""
MESSAGE_TYPE = "query.fedblade"
"""One kind of message for everything; the facts say what is asked."""


def to_message(request: Request) -> Message:
    """A request as a message to its node."""
    return Message(
        content=_content({"kind": request.kind, **request.facts}, request.tensors),
        dst_node_id=request.node,
        message_type=MESSAGE_TYPE,
        group_id=str(request.facts.get("round", "")),
    )


def asked(message: Message) -> tuple[str, dict[str, Any], Tree]:
    """What a message asks: its kind, facts and tensors."""
    facts, tensors = _opened(message.content)
    return str(facts.pop("kind")), facts, tensors


def answer(message: Message, facts: dict[str, Any], tensors: Tree) -> Message:
    """The message that answers another."""
    return Message(content=_content(facts, tensors), reply_to=message)


def to_reply(message: Message) -> Reply:
    """What came back, or why nothing did; a message that cannot be read is an error like any other."""
    id_ = message.metadata.reply_to_message_id
    node = message.metadata.src_node_id
    if message.has_error():
        return Reply(id_, None, error=f"Flower: {message.error.reason} (code {message.error.code})")
    try:
        facts, tensors = _opened(message.content)
    except Exception as error:  # whatever a hostile message raises must not stop the run
        return Reply(id_, node, error=f"it cannot be read ({type(error).__name__})")
    return Reply(id_, node, facts, tensors, str(facts["error"]) if "error" in facts else None)


def _content(facts: dict[str, Any], tensors: Tree) -> RecordDict:
    arrays = {name: Array(leaf.detach().cpu().contiguous().numpy()) for name, leaf in tensors.items()}
    return RecordDict({_TENSORS: ArrayRecord(arrays), _FACTS: ConfigRecord({_JSON: json.dumps(facts)})})


def _opened(content: RecordDict) -> tuple[dict[str, Any], Tree]:
    """Facts and tensors of a message; no pickled array is ever loaded."""
    text = str(content[_FACTS][_JSON])
    if len(text) > _MOST_FACTS:
        raise ValueError(f"facts of {len(text)} characters")
    # Cloned into torch's own memory: kernels round differently on buffers that are aligned differently.
    tensors = {name: torch.from_numpy(array.numpy()).clone() for name, array in content[_TENSORS].items()}
    return dict(json.loads(text)), tensors
