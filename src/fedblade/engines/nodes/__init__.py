"""What the deployed engine is made of: requests to nodes, what they may answer, and how that adds up."""

from fedblade.engines.nodes._dispatch import Dispatch, Terms
from fedblade.engines.nodes._hello import Holding
from fedblade.engines.nodes._in_short import printable
from fedblade.engines.nodes._post import Post, Reply, Request, Size
from fedblade.engines.nodes._roster import LONGEST, Journal, Roster

__all__ = [
    "LONGEST",
    "Dispatch",
    "Holding",
    "Journal",
    "Post",
    "Reply",
    "Request",
    "Roster",
    "Size",
    "Terms",
    "printable",
]
