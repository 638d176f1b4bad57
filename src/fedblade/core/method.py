"""A method is a frozen value: head, losses, phases, sums, server step, state, exchanges, buffers, personal parts."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.state import ServerState
from fedblade.core.sums import Sum, Sums
from fedblade.core.terms import AnyTerm, FeatureTerm, Term, active
from fedblade.core.tree import Tree, tree_zeros
from fedblade.core.views import EndView, Head

ALL_GROUPS = ("body", "projector", "head", "scale", "personal_head")
"""Parameter groups, by the first part of a name; a neck belongs to `body`. `norm` is what normalisation layers hold."""


GROUPS = (*ALL_GROUPS, "norm")


def _check_names(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise Misconfigured(f"{where} names '{name}', which does not exist.{nearest(name, known)}")


def _check_balance(terms: tuple[AnyTerm, ...]) -> None:
    """A balanced strength is a share of the supervised pull, so there must be one."""
    balanced = [t.name for t in active(terms) if isinstance(t, FeatureTerm) and t.balance is not None]
    if balanced and not any(isinstance(t, Term) and t.supervised for t in terms):
        raise Misconfigured(
            f"term '{balanced[0]}' is balanced against a supervised term, but none is marked supervised. "
            f'Set supervised = True on the method\'s own loss, or use a fixed weight (balance = "none").'
        )


@dataclass(frozen=True)
class InitView:
    """What initial state is made from."""

    params: Tree
    dim: int
    num_classes: int
    population: int


Init = Callable[[InitView], Tree]
ServerStep = Callable[[ServerState, Sums], ServerState]


def zeros(view: InitView) -> Tree:
    """State that starts as zeros of the shape of the parameters."""
    return tree_zeros(view.params)


@dataclass(frozen=True)
class Phase:
    """A stretch of local training: which groups train, for how long (None: the run's epochs) and on which losses.

    `losses` None means the method's own.
    """

    trains: tuple[str, ...] = ALL_GROUPS
    epochs: int | None = None
    losses: tuple[AnyTerm, ...] | None = None

    def __post_init__(self) -> None:
        _check_names("Phase.trains", self.trains, GROUPS)


@dataclass(frozen=True)
class Exchange:
    """A pass besides the round: chosen clients send sums made with the current global model, the server steps.

    It happens before the first round, after each aggregation (with the cohort) or after the last round.
    """

    when: Literal["before_run", "after_round", "after_run"]
    sums: tuple[Sum, ...]
    server: ServerStep
    clients: Literal["cohort", "all"] = "all"

    def __post_init__(self) -> None:
        if self.clients == "cohort" and self.when != "after_round":
            raise Misconfigured(f"an exchange {self.when.replace('_', ' ')} has no cohort; use clients='all'.")


@dataclass(frozen=True)
class Method:
    """A federated method. It holds no tensor and no loop; engines give it a client axis.

    `server_state` names in `broadcast` travel to the clients each round (all of them if None). Parameters and
    statistics of the groups in `personal`, and with `buffers="local"` all statistics, stay on the client.
    `gauges` are numbers of the server state that the history shows each round.
    """

    head: Head
    losses: tuple[AnyTerm, ...]
    sums: tuple[Sum, ...]
    server: ServerStep
    phases: tuple[Phase, ...] = (Phase(),)
    server_state: Mapping[str, Init] = field(default_factory=dict)
    broadcast: tuple[str, ...] | None = None
    client_state: Mapping[str, Init] = field(default_factory=dict)
    client_update: Mapping[str, Callable[[EndView], Tree]] = field(default_factory=dict)
    exchanges: tuple[Exchange, ...] = ()
    buffers: Literal["average", "local"] = "average"
    personal: tuple[str, ...] = ()
    accuracy_of: Literal["global", "personal"] = "global"
    gauges: Mapping[str, Callable[[ServerState], float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_names("Method.personal", self.personal, GROUPS)
        _check_names("Method.client_update", self.client_update, self.client_state)
        _check_names("Method.broadcast", self.broadcast or (), self.server_state)
        for phase in self.phases:
            _check_balance(self.losses if phase.losses is None else phase.losses)

    @property
    def sent(self) -> tuple[str, ...]:
        """Names of the server state that clients receive each round."""
        return tuple(self.server_state) if self.broadcast is None else self.broadcast
