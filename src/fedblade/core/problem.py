"""What stays the same over a run, and what one client receives in one round."""

from dataclasses import dataclass

from fedblade.core.method import InitView, Method
from fedblade.core.network import Network
from fedblade.core.plan import ClientTask
from fedblade.core.samples import Samples
from fedblade.core.state import ServerState
from fedblade.core.tree import State, Tree, tree_clone

PERSONAL, BUFFERS, MOMENTUM = "_personal", "_buffers", "_momentum"
"""Names under which a client keeps its own parameters, statistics and momentum beside the method's state."""


@dataclass(frozen=True)
class LocalSettings:
    """Optimiser settings of the run; the rate comes with each round."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    persist: bool = False


@dataclass(frozen=True)
class Problem:
    """Method, network, training data, optimiser, and the start that all state is derived from."""

    method: Method
    network: Network
    samples: Samples
    settings: LocalSettings
    start: InitView

    @property
    def shared(self) -> frozenset[str]:
        """Names of the parameters and statistics that travel."""
        buffers = self.network.buffer_names if self.method.buffers == "average" else frozenset()
        names = frozenset(self.start.params) | buffers
        return names - self.network.names_in(self.method.personal, names)


@dataclass(frozen=True)
class Received:
    """What a client holds when its round begins and does not change: the anchor is its model at that moment."""

    task: ClientTask
    anchor: Tree
    buffers: Tree
    fixed: Tree
    server: State
    client: State
    momentum: Tree | None
    lr: float


def receive(problem: Problem, server: ServerState, task: ClientTask, own: State | None, lr: float) -> Received:
    """The global model with the client's own parts put in place, and the states of both sides."""
    own = own or {}
    method = problem.method
    return Received(
        task=task,
        anchor=tree_clone(server.params) | tree_clone(own.get(PERSONAL, {})),
        buffers=tree_clone(server.buffers) | tree_clone(own.get(BUFFERS, {})),
        fixed=server.fixed,
        server={name: server.extra[name] for name in method.sent},
        client={name: own[name] if name in own else init(problem.start) for name, init in method.client_state.items()},
        momentum=own.get(MOMENTUM),
        lr=lr,
    )
