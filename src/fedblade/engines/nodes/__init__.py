"""The parts of the deployed engine: requests to nodes, the checks of their replies, and the sum of the replies."""

from fedblade.engines.nodes._descriptions import ClientDescription, digests_differ
from fedblade.engines.nodes._dispatch import Dispatch, Terms
from fedblade.engines.nodes._protocol import own_protocol, protocol_difference
from fedblade.engines.nodes._roster import Journal, Roster
from fedblade.engines.nodes._transport import Reply, Request, SizeLimit, Transport

__all__ = [
    "ClientDescription",
    "Dispatch",
    "Journal",
    "Reply",
    "Request",
    "Roster",
    "SizeLimit",
    "Terms",
    "Transport",
    "digests_differ",
    "own_protocol",
    "protocol_difference",
]
