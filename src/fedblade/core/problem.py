"""What stays the same over a run, what clients receive in a round, and the models that they train."""

from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import Tensor

from fedblade.core.method import InitView, Method
from fedblade.core.network import Network
from fedblade.core.plan import Batch
from fedblade.core.samples import Samples
from fedblade.core.tree import State, Tree, tree_part

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

    @cached_property
    def reads_state(self) -> bool:
        """Whether a round reads anything of what a client keeps."""
        freed = frozenset(name for phase in self.method.phases for name in phase.frees)
        personal = (frozenset(self.start.params) | self.network.buffer_names | freed) - self.shared
        return bool(self.method.read_state or self.settings.persist or personal)


@dataclass(frozen=True)
class Received:
    """What a client has when its round begins; nothing of it changes. `anchor` is the client's model at that moment.

    `batches` has the batches of each phase, and `seed` is for layers that draw numbers themselves. In a group all
    tensors but those of `server` have a client axis.
    """

    round: int
    seed: int
    counts: Tensor
    anchor: Tree
    buffers: Tree
    fixed: Tree
    server: State
    client: State
    momentum: Tree | None
    lr: float | Tensor
    batches: tuple[tuple[Batch, ...], ...] = ()

    def part(self, clients: slice) -> "Received":
        """What some clients of a group received, as views."""
        return replace(
            self,
            counts=self.counts[clients],
            anchor=tree_part(self.anchor, clients),
            buffers=tree_part(self.buffers, clients),
            fixed=tree_part(self.fixed, clients),
            client={name: tree_part(tree, clients) for name, tree in self.client.items()},
            momentum=None if self.momentum is None else tree_part(self.momentum, clients),
        )


@dataclass
class LocalModel:
    """The tensors that change while a client trains a model; `tracks` are models that it trains beside this one."""

    params: Tree
    buffers: Tree
    momentum: Tree
    tracks: dict[str, "LocalModel"] = field(default_factory=dict)

    def part(self, clients: slice) -> "LocalModel":
        """The models of some clients of a group, without tracks, as views."""
        params, buffers, momentum = (tree_part(tree, clients) for tree in (self.params, self.buffers, self.momentum))
        return LocalModel(params, buffers, momentum)
