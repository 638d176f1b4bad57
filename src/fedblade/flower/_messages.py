"""Requests and replies as Flower messages: tensors as arrays, facts as JSON in a config record."""

import json
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedblade.core.tree import Tree
from fedblade.core.untrusted_text import REASON_CHARACTERS, printable, short_repr
from fedblade.engines.nodes import Reply, Request, SizeLimit
from fedblade.flower._node_errors import error_text

_TENSORS, _FACTS, _JSON = "tensors", "facts", "json"
_MAX_FACTS = 10_000_000
"""Characters of the facts of a request."""
_HEADER_BYTES = 512
"""Bytes that an array may have besides its numbers: its header, its name, its shape and the name of its type."""
_SIZE_BYTES = 8
"""Bytes of one size in a shape."""
_ARRAY_BYTES, _CHUNK_BYTES, _OTHER_BYTES = 2048, 512, 10_000
"""Most bytes that Flower adds to an array, to each begun mebibyte of arrays, and to a message, on their way."""
_CHARACTER_BYTES = 4
_MIN_SLACK = 60.0
_GONE = (3, 4, 5)
"""Flower's error codes for an unavailable message, reply or node; the other codes mean that an app failed."""
MESSAGE_TYPE = "query.fedblade"
"""The type of every message; the facts say what is asked."""


class _Refused(Exception):
    """A message has other records than a reply has, or more bytes than it can have; the text says what it has."""


def seconds_valid(seconds: float) -> float:
    """How long the SuperLink keeps a request whose reply counts for `seconds`: the clocks of nodes may be ahead."""
    return seconds + max(seconds, _MIN_SLACK)


def to_message(request: Request, seconds: float) -> Message:
    """A request as a message to its node. Flower keeps it for longer than the `seconds` in which a reply counts.

    A reply expires with its request, by the clock of the node. The extra time is how far the node's clock may be ahead
    of the server's clock.
    """
    return Message(
        content=_pack({"kind": request.kind, **request.facts}, request.tensors),
        dst_node_id=request.node,
        message_type=MESSAGE_TYPE,
        ttl=seconds_valid(seconds),
        group_id=str(request.facts.get("round", "")),
    )


def read_request(message: Message) -> tuple[str, dict[str, Any], Tree]:
    """The kind, the facts and the tensors of a request."""
    facts, tensors = _unpack(message.content)
    return str(facts.pop("kind")), facts, tensors


def reply_message(message: Message, facts: dict[str, Any], tensors: Tree) -> Message:
    """The message that replies to another."""
    return Message(content=_pack(facts, tensors), reply_to=message)


def to_reply(message: Message, request: str, node: int, limit: SizeLimit) -> Reply:
    """The reply of a node to a request, or the error in its place.

    A message that cannot be read, or is above the size limit, becomes an error. The request and the node are given by
    the caller, because the message could name wrong ones.
    """
    if message.has_error():
        reason = printable(f"Flower: {message.error.reason} (code {message.error.code})", REASON_CHARACTERS)
        return Reply(request, None if message.error.code in _GONE else node, error=reason)
    if message.metadata.reply_to_message_id != request:
        return Reply(request, node, error="it says that it answers another request")
    try:
        _check_records(message.content)
        _check_size(message.content, limit)
        facts, tensors = _unpack(message.content)
    except _Refused as error:
        return Reply(request, node, error=str(error))
    except Exception as error:  # no error of a hostile message may stop the run
        return Reply(request, node, error=f"it cannot be read ({type(error).__name__})")
    return Reply(request, node, facts, tensors, error_text(facts) if "error" in facts else None)


def largest_message(limit: SizeLimit) -> int:
    """Bytes that no message within the limit has on its way, with everything that Flower adds to it."""
    added = _ARRAY_BYTES * limit.arrays + _CHUNK_BYTES * (limit.bytes // 2**20 + 1) + _OTHER_BYTES
    return limit.bytes + _CHARACTER_BYTES * limit.facts + added


def _check_records(content: RecordDict) -> None:
    """Refuse a message with anything besides its tensors and its facts."""
    names = set(content) - {_TENSORS, _FACTS} or set(content[_FACTS]) - {_JSON}
    if names:
        raise _Refused(f"it has the records {short_repr(sorted(names))}; expected the tensors and the facts alone")


def _check_size(content: RecordDict, limit: SizeLimit) -> None:
    """Refuse too many bytes before they are read as numbers or as facts."""
    arrays = content[_TENSORS]
    size = sum(
        len(array.data) + len(name) + len(array.dtype) + len(array.stype) + _SIZE_BYTES * len(array.shape)
        for name, array in arrays.items()
    )
    if len(arrays) > limit.arrays or size > limit.bytes + _HEADER_BYTES * len(arrays):
        raise _Refused(
            f"it has {len(arrays)} arrays in {size} bytes; an answer has at most {limit.arrays} in {limit.bytes}"
        )
    text = content[_FACTS][_JSON]
    if isinstance(text, str) and len(text) > limit.facts:
        raise _Refused(f"it has {len(text)} characters of facts; an answer has at most {limit.facts}")


def _pack(facts: dict[str, Any], tensors: Tree) -> RecordDict:
    arrays = {name: Array(leaf.detach().cpu().contiguous().numpy()) for name, leaf in tensors.items()}
    return RecordDict({_TENSORS: ArrayRecord(arrays), _FACTS: ConfigRecord({_JSON: json.dumps(facts)})})


def _unpack(content: RecordDict) -> tuple[dict[str, Any], Tree]:
    """Facts and tensors of a message; pickled arrays are not loaded, and other records are refused."""
    _check_records(content)
    text = content[_FACTS][_JSON]
    if not isinstance(text, str) or len(text) > _MAX_FACTS:
        raise ValueError(f"the facts are not a text of at most {_MAX_FACTS} characters")
    # The clone is in memory that torch aligns: kernels round differently on buffers with another alignment.
    tensors = {name: torch.from_numpy(array.numpy()).clone() for name, array in content[_TENSORS].items()}
    return dict(json.loads(text)), tensors
