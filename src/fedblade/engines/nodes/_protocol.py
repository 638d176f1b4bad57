"""The protocol of requests and replies. Nodes and coordinator need the same protocol, not the same release."""

from collections.abc import Mapping
from typing import Any

from fedblade._version import __version__
from fedblade.core.untrusted_text import short_repr

PROTOCOL = 1
"""Raise it with every change after which a node and a coordinator of two releases would misunderstand each other.

Such changes concern the kinds of requests, the facts and tensors of requests and replies, and the keys of a
configuration. A release that only computes something differently raises a revision instead.
"""


def own_protocol() -> dict[str, Any]:
    """What a node and a coordinator say of themselves in a greeting, in a description and in an error."""
    return {"protocol": PROTOCOL, "version": __version__}


def protocol_difference(facts: Mapping[str, Any], other: str, this: str) -> str | None:
    """Which protocols the two sides speak if they differ; `facts` are what the other side says of itself."""
    given = facts.get("protocol")
    if type(given) is int and given == PROTOCOL:
        return None
    return (
        f"{other} speaks protocol {short_repr(given)} (fedblade {short_repr(facts.get('version'))}), "
        f"{this} protocol {PROTOCOL} (fedblade {__version__!r})"
    )
