"""How a node signs its calls, and for whom it speaks in them."""

import base64
import binascii
import datetime
from collections.abc import Callable, Mapping

from flwr.common.constant import TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature
from google.protobuf.message import DecodeError

AHEAD_SECONDS = 60.0
"""How far the clock of a node may be ahead of the coordinator's; Flower alone allows five seconds."""


def is_signed(headers: Mapping[str, str], is_known: Callable[[bytes], bool]) -> bool:
    """Whether the owner of a known key signed a call just now; keys are in PEM format."""
    try:
        key = base64.b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
        if not is_known(key):
            return False
        signature = base64.b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
        time = headers[TIMESTAMP_HEADER]
        age = (datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(time)).total_seconds()
        recent = -AHEAD_SECONDS < age < TIMESTAMP_TOLERANCE + AHEAD_SECONDS
        return bool(recent and verify_signature(bytes_to_public_key(key), time.encode("ascii"), signature))
    except (KeyError, ValueError, TypeError, binascii.Error):
        return False


def is_from_one_node(push: bytes) -> bool:
    """Whether the node that makes a call to push messages is also the sender that every message names.

    The SuperLink compares the key of the call with the node alone. It would therefore take a reply in another node's
    name from whoever knows the id of the request.
    """
    try:
        call = PushMessagesRequest.FromString(push)
    except DecodeError:
        return False
    return all(message.metadata.src_node_id == call.node.node_id for message in call.messages_list)
