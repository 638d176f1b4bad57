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
"""Names under which a client keeps personal parameters, statistics and momentum beside the method's state."""


@dataclass(frozen=True)
class LocalSettings:
    """Optimiser settings of the run; the learning rate comes with each round."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    persist: bool = False


@dataclass(frozen=True)
class Problem:
    """Method, network, training data, optimiser settings, and the initial view that all state is made from."""

    method: Method
    network: Network
    samples: Samples
    settings: LocalSettings
    start: InitView

    @cached_property
    def shared(self) -> frozenset[str]:
        """Names of the parameters and statistics that travel between server and clients."""
        buffers = self.network.buffer_names if self.method.buffers == "average" else frozenset()
        names = frozenset(self.start.params) | buffers
        return names - self.network.names_in(self.method.personal, names)

    @cached_property
    def uploaded(self) -> frozenset[str]:
        """The shared names that clients send; parameters that no phase trains are only received."""
        groups = tuple({group for phase in self.method.phases if phase.track is None for group in phase.trains})
        untrained = frozenset(self.start.params) - self.network.names_in(groups, self.start.params)
        return self.shared - untrained


@dataclass(frozen=True)
class Received:
    """What a client has when its round begins; nothing of it changes. `anchor` is the client's model at that moment."""

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
    """The tensors that change while a client trains a model; `tracks` are models that it trains beside this one."""

    params: Tree
    buffers: Tree
    momentum: Tree
    tracks: dict[str, "LocalModel"] = field(default_factory=dict)

    def first(self, clients: int) -> "LocalModel":
        """Views of the first clients; the tensors must have a client axis."""
        params, buffers, momentum = (
            {name: leaf[:clients] for name, leaf in tree.items()} for tree in (self.params, self.buffers, self.momentum)
        )
        return LocalModel(params, buffers, momentum)


def receive(
    problem: Problem,
    server: ServerState,
    task: ClientTask,
    state: State | None,
    lr: float,
    phases: tuple[Phase, ...] | None = None,
) -> Received:
    """The global model with the client's personal parts, and the states of server and client.

    Fixed tensors that `phases` (None: the method's) free are among the parameters.
    """
    kept = state or {}
    method = problem.method
    freed = {name for phase in (method.phases if phases is None else phases) for name in phase.frees}
    return Received(
        task=task.on(problem.samples.labels.device),
        anchor=tree_clone(server.params | tree_select(server.fixed, freed) | kept.get(PERSONAL, {})),
        buffers=tree_clone(server.buffers | kept.get(BUFFERS, {})),
        fixed=server.fixed,
        server={name: server.extra[name] for name in method.sent},
        client={n: kept[n] if n in kept else init(problem.start) for n, init in method.client_state.items()},
        momentum=kept.get(MOMENTUM),
        lr=lr,
    )


def personal_model(problem: Problem, server: ServerState, state: State | None) -> tuple[Tree, Tree, Tree]:
    """Parameters, statistics and fixed tensors of a client's personal model.

    A client without a state has the global model, or the initial model of the track that trains its personal model.
    """
    kept, method = state or {}, problem.method
    name = method.own.state
    if name is not None and name not in kept and any(phase.track == name for phase in method.phases):
        tensors = method.client_state[name](problem.start)
    else:
        tensors = kept.get(name or "", {})
    own = kept.get(PERSONAL, {}) | kept.get(BUFFERS, {}) | tensors
    params, buffers, fixed = (tree | tree_select(own, tree) for tree in (server.params, server.buffers, server.fixed))
    return params, buffers, fixed
