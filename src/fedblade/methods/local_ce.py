"""Local-only training with cross-entropy: the accuracy that a client reaches without a federation."""

from fedblade.core.method import Method
from fedblade.core.phase import ALL_GROUPS, Phase
from fedblade.core.registry import methods
from fedblade.core.state import ServerState
from fedblade.core.sums import Sums
from fedblade.core.terms import AnyTerm
from fedblade.core.views import Head
from fedblade.heads import LinearHead
from fedblade.losses import CrossEntropy


def alone(head: Head, loss: AnyTerm, trains: tuple[str, ...] = ALL_GROUPS) -> Method:
    """Every client trains a personal model in every round, from a common start; nothing travels."""
    return Method(
        head=head,
        losses=(loss,),
        sums=(),
        server=_unchanged,
        phases=(Phase(trains=trains),),
        personal=ALL_GROUPS,
        buffers="local",
        participation="all",
        accuracy_of="personal",
    )


def _unchanged(state: ServerState, sums: Sums) -> ServerState:  # noqa: ARG001 - nothing is sent
    return state


@methods.register(paper="arXiv:2406.02355")
def local_ce() -> Method:
    """Train every client alone, with a linear head.

    Objective: L_k = mean_i CE(W z_i + b, y_i), rounds × epochs on each client.
    """
    return alone(LinearHead(), CrossEntropy())
