"""Bytes that travel between the server and its clients."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedblade.core.method import Exchange
from fedblade.core.outcome import StepLog
from fedblade.core.state import ServerState
from fedblade.core.tree import tree_bytes, tree_select
from fedblade.runs._setup import Setup


@dataclass
class RoundTraffic:
    """Bytes of a round so far, up and down, and what the clients logged in its exchanges."""

    up: int = 0
    down: int = 0
    log: StepLog = field(default_factory=StepLog)


@dataclass(frozen=True)
class DownloadBytes:
    """Bytes that one client receives: the shared parameters and statistics, and further state of the server by name."""

    model: int
    server_state: Mapping[str, int]

    @property
    def total(self) -> int:
        """Bytes that a client receives before it trains, or before it passes over its samples for an exchange."""
        return self.model + sum(self.server_state.values())

    def for_exchange(self, exchange: Exchange) -> int:
        """Bytes that a client receives for an exchange: none if the client does not need the model for it."""
        return self.total if any(declared.passes for declared in exchange.sums) else 0


def download_bytes(setup: Setup, state: ServerState) -> DownloadBytes:
    """What a client receives while the server has this state."""
    return DownloadBytes(
        tree_bytes(tree_select(state.params | state.buffers, setup.problem.shared)),
        {name: tree_bytes(state.extra[name]) for name in setup.method.sent},
    )
