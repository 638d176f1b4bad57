"""The parts of the deployed engine: requests to nodes, the checks of their replies, and the sum of the replies."""

from fedblade.engines.nodes._descriptions import ClientDescription, Scaling, digests_differ
from fedblade.engines.nodes._dispatch import Dispatch, RoundRules
from fedblade.engines.nodes._members import Members, Welcome
from fedblade.engines.nodes._protocol import own_protocol, protocol_difference
from fedblade.engines.nodes._roster import Admitted, Journal, Roster
from fedblade.engines.nodes._transport import Reply, Request, SizeLimit, Transport

__all__ = [
    "Admitted",
    "ClientDescription",
    "Dispatch",
    "Journal",
    "Members",
    "Reply",
    "Request",
    "Roster",
    "RoundRules",
    "Scaling",
    "SizeLimit",
    "Transport",
    "Welcome",
    "digests_differ",
    "own_protocol",
    "protocol_difference",
]
