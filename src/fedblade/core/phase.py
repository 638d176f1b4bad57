"""Phases: parts of local training, as data."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.terms import AnyTerm
from fedblade.core.tree import Tree

ALL_GROUPS = ("body", "projector", "head", "scale", "personal_head")
"""Parameter groups, by the first part of a name; a neck belongs to `body`. `norm` has the normalisation layers."""

GROUPS = (*ALL_GROUPS, "norm")


def check_names(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a name that is not known; the error suggests the nearest known name."""
    options = tuple(known)
    for name in given:
        if name not in options:
            raise Misconfigured(f"{where} names '{name}', which does not exist.{nearest(name, options)}")


@dataclass(frozen=True)
class Sgd:
    """Optimiser settings that differ from the run's; None keeps the run's."""

    lr: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None


@dataclass(frozen=True)
class MoveView:
    """What a look-ahead sees: the trained parameters, the received ones, a gradient and the run's learning rate."""

    params: Tree
    anchor: Tree
    gradient: Tree
    lr: float | Tensor


@dataclass(frozen=True)
class Lookahead:
    """A step with two gradients: of `losses` at w, and of the phase's losses at the point that `move` returns.

    The step uses the second gradient. `losses` None means the phase's losses. With `fresh_batch` the second gradient is
    taken on a second batch. Only the first pass updates the statistics of normalisation layers. With `momentum` the
    first gradient is added to the momentum, and `move` sees the momentum instead of the gradient.
    """

    move: Callable[[MoveView], Tree]
    losses: tuple[AnyTerm, ...] | None = None
    fresh_batch: bool = False
    momentum: bool = False


@dataclass(frozen=True)
class Phase:
    """A part of local training: which groups train, for how long (None: the run's epochs) and on which losses.

    `losses` None means the method's losses. `steps` ends the phase early. `sgd` changes the optimiser for all groups,
    `group_sgd` for single groups. With `carries_momentum` the phase starts with the momentum of the phase before. A
    phase with a `track` trains the model in the client state, or the draft, of that name instead of the received model;
    the phase sees the batches that this model would see alone. `frees` names fixed tensors that train too and then
    belong to the client. With `statistics` "keep" normalisation layers work as in evaluation.
    """

    trains: tuple[str, ...] = ALL_GROUPS
    epochs: int | None = None
    losses: tuple[AnyTerm, ...] | None = None
    steps: int | None = None
    sgd: Sgd = Sgd()
    group_sgd: Mapping[str, Sgd] = field(default_factory=dict)
    carries_momentum: bool = False
    track: str | None = None
    frees: tuple[str, ...] = ()
    statistics: Literal["update", "keep"] = "update"
    lookahead: Lookahead | None = None

    def __post_init__(self) -> None:
        check_names("Phase.trains", self.trains, GROUPS)
        check_names("Phase.group_sgd", self.group_sgd, self.trains)

    @property
    def paired(self) -> bool:
        """Whether a step takes two batches."""
        return self.lookahead is not None and self.lookahead.fresh_batch
