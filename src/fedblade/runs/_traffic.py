"""What travels between the server and its clients, in bytes."""

from dataclasses import dataclass, field

from fedblade.core.method import Exchange
from fedblade.core.outcome import StepLog
from fedblade.core.state import ServerState
from fedblade.core.tree import tree_bytes, tree_select
from fedblade.runs._setup import Setup


@dataclass
class Bytes:
    """Traffic of a round so far, and what the engine counted in its exchanges."""

    up: int = 0
    down: int = 0
    log: StepLog = field(default_factory=StepLog)


def model_bytes(setup: Setup, state: ServerState) -> int:
    """The shared weights and statistics."""
    return tree_bytes(tree_select(state.params | state.buffers, setup.problem.shared))


def broadcast_bytes(setup: Setup, state: ServerState) -> dict[str, int]:
    """The server's state that clients receive, by name."""
    return {name: tree_bytes(state.extra[name]) for name in setup.method.sent}


def bytes_down(setup: Setup, state: ServerState) -> int:
    """What a client receives in order to train or to look at its samples with the model."""
    return model_bytes(setup, state) + sum(broadcast_bytes(setup, state).values())


def exchange_bytes_down(setup: Setup, state: ServerState, exchange: Exchange) -> int:
    """What a client receives for an exchange: nothing, unless it passes over its samples with the model."""
    return bytes_down(setup, state) if any(each.passes for each in exchange.sums) else 0
