"""What stays the same over a run, what one client receives in one round, and the model that it trains."""

from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from fedblade.core.method import InitView, Method
from fedblade.core.network import Network
from fedblade.core.phase import Phase
from fedblade.core.plan import ClientTask
from fedblade.core.samples import Samples
from fedblade.core.state import ServerState
from fedblade.core.tree import State, Tree, tree_clone, tree_select

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

    @cached_property
    def shared(self) -> frozenset[str]:
        """Names of the parameters and statistics that travel."""
        buffers = self.network.buffer_names if self.method.buffers == "average" else frozenset()
        names = frozenset(self.start.params) | buffers
        return names - self.network.names_in(self.method.personal, names)

    @cached_property
    def uploaded(self) -> frozenset[str]:
        """The shared names that clients change: parameters which no phase trains only travel down."""
        groups = tuple({group for phase in self.method.phases if phase.track is None for group in phase.trains})
        untrained = frozenset(self.start.params) - self.network.names_in(groups, self.start.params)
        return self.shared - untrained


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
    lr: float | Tensor


@dataclass
class LocalModel:
    """The tensors of a model that a client changes while it trains; `tracks` are the models of its state beside it."""

    params: Tree
    buffers: Tree
    momentum: Tree
    tracks: dict[str, "LocalModel"] = field(default_factory=dict)

    def first(self, clients: int) -> "LocalModel":
        """Views of the first so many clients, where there is a client axis."""
        params, buffers, momentum = (
            {name: leaf[:clients] for name, leaf in tree.items()} for tree in (self.params, self.buffers, self.momentum)
        )
        return LocalModel(params, buffers, momentum)


def receive(
    problem: Problem,
    server: ServerState,
    task: ClientTask,
    own: State | None,
    lr: float,
    phases: tuple[Phase, ...] | None = None,
) -> Received:
    """The global model with the client's own parts put in place, and the states of both sides.

    Fixed tensors that `phases` (None: the method's) free are among the parameters.
    """
    own = own or {}
    method = problem.method
    freed = {name for phase in (method.phases if phases is None else phases) for name in phase.frees}
    return Received(
        task=task.on(problem.samples.labels.device),
        anchor=tree_clone(server.params | tree_select(server.fixed, freed) | own.get(PERSONAL, {})),
        buffers=tree_clone(server.buffers | own.get(BUFFERS, {})),
        fixed=server.fixed,
        server={name: server.extra[name] for name in method.sent},
        client={name: own[name] if name in own else init(problem.start) for name, init in method.client_state.items()},
        momentum=own.get(MOMENTUM),
        lr=lr,
    )


def own_model(problem: Problem, server: ServerState, own: State | None) -> tuple[Tree, Tree, Tree]:
    """Parameters, statistics and fixed tensors of a client's own model.

    A client that has kept nothing yet has the global model, or the first one of a model that trains beside it.
    """
    own, method = own or {}, problem.method
    name = method.own.state
    beside = name is not None and name not in own and any(phase.track == name for phase in method.phases)
    kept = method.client_state[name](problem.start) if name is not None and beside else own.get(name or "", {})
    mine = own.get(PERSONAL, {}) | own.get(BUFFERS, {}) | kept
    params, buffers, fixed = (tree | tree_select(mine, tree) for tree in (server.params, server.buffers, server.fixed))
    return params, buffers, fixed
