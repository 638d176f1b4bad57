"""A method is a frozen value: head, losses, phases, sums, server step, state, exchanges, buffers, personal parts."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.neck import Neck
from fedblade.core.phase import GROUPS, Phase, check_names
from fedblade.core.state import ServerState
from fedblade.core.streams import Streams
from fedblade.core.sums import Sum, Sums
from fedblade.core.terms import AnyTerm, FeatureTerm, Term, active
from fedblade.core.tree import Tree, tree_clone, tree_zeros
from fedblade.core.views import EndView, Head, StepView


def _check_balance(terms: tuple[AnyTerm, ...]) -> None:
    """Refuse balanced terms without a supervised term, which their strength is a share of."""
    balanced = [t.name for t in active(terms) if isinstance(t, FeatureTerm) and t.balance is not None]
    if balanced and not any(isinstance(t, Term) and t.supervised for t in terms):
        raise Misconfigured(
            f"term '{balanced[0]}' is balanced against a supervised term, but none is marked supervised. "
            f'Set supervised = True on the method\'s own loss, or use a fixed weight (balance = "none").'
        )


@dataclass(frozen=True)
class InitView:
    """What initial state is made from: the initial model, its sizes, and the streams of the run's seed."""

    params: Tree
    dim: int
    num_classes: int
    population: int
    buffers: Tree = field(default_factory=dict)
    fixed: Tree = field(default_factory=dict)
    streams: Streams = field(default_factory=lambda: Streams(0))


Init = Callable[[InitView], Tree]
ServerStep = Callable[[ServerState, Sums], ServerState]


def zeros(view: InitView) -> Tree:
    """State that starts as zeros of the shape of the parameters."""
    return tree_zeros(view.params)


def model(view: InitView) -> Tree:
    """State that starts as the initial model: its parameters and statistics."""
    return tree_clone(view.params | view.buffers)


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


Stages = tuple[tuple[Phase, ...], ...]
"""Training of a client's personal model after the run; the model is measured after each stage."""


@dataclass(frozen=True)
class Own:
    """A client's personal model: where it is, how it predicts, and how it is tuned before it is measured.

    `state` names the client state with the model; None means the global model with the client's personal parts.
    `logits` is the client's prediction; None means the head's. `tuning` has the stages of the protocols `ft`,
    `pers_etf` and `gapa` where they differ from the protocol's rule. `finetune` has the phases of fine-tuning; None
    means the method's phases.
    """

    state: str | None = None
    logits: Callable[[StepView], Tensor] | None = None
    finetune: tuple[Phase, ...] | None = None
    tuning: Mapping[str, Stages] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """A federated method. It has no tensor and no loop; engines give it a client axis.

    `server_state` names in `broadcast` travel to the clients each round (all of them if None). Parameters and
    statistics of the groups in `personal`, and with `buffers="local"` all statistics, stay on the client. Client states
    in `write_only` are made anew in every round and serve the personal model only: a round does not load them, and its
    `view.client` lacks them. `drafts` names models that a phase's `track` trains beside the received model: a draft
    starts every round as the received model, later phases see it in `view.client`, and no client keeps it.
    `participation` "all" trains every client in every round. `noise` uniform numbers per sample are drawn for each
    step. `clip` is the largest gradient norm of a local step if the run sets none. `evaluated` returns the state to
    measure and save, if it is not the trained one. `gauges` are numbers of the server state that the history shows each
    round.
    """

    head: Head
    losses: tuple[AnyTerm, ...]
    sums: tuple[Sum, ...]
    server: ServerStep
    phases: tuple[Phase, ...] = (Phase(),)
    neck: Neck | None = None
    noise: int = 0
    clip: float | None = None
    server_state: Mapping[str, Init] = field(default_factory=dict)
    broadcast: tuple[str, ...] | None = None
    client_state: Mapping[str, Init] = field(default_factory=dict)
    client_update: Mapping[str, Callable[[EndView], Tree]] = field(default_factory=dict)
    write_only: tuple[str, ...] = ()
    drafts: tuple[str, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    buffers: Literal["average", "local"] = "average"
    personal: tuple[str, ...] = ()
    own: Own = Own()
    participation: Literal["cohort", "all"] = "cohort"
    accuracy_of: Literal["global", "personal"] = "global"
    evaluated: Callable[[ServerState], ServerState] | None = None
    gauges: Mapping[str, Callable[[ServerState], float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise Misconfigured(f"clip={self.clip!r}: expected a gradient norm above 0, such as 20, or none at all.")
        check_names("Method.personal", self.personal, GROUPS)
        check_names("Method.client_update", self.client_update, self.client_state)
        check_names("Method.broadcast", self.broadcast or (), self.server_state)
        check_names("Method.write_only", self.write_only, self.client_update)
        if twice := sorted(set(self.drafts) & set(self.client_state)):
            raise Misconfigured(f"'{twice[0]}' is a draft and a client state. Give one of them another name.")
        check_names("Own.state", [self.own.state] if self.own.state else (), self.client_state)
        for phase in self.phases:
            beside = (*self.read_state, *self.drafts)
            check_names("Phase.track", [phase.track] if phase.track else (), beside)
            _check_balance(self.losses if phase.losses is None else phase.losses)

    @property
    def sent(self) -> tuple[str, ...]:
        """Names of the server state that clients receive each round."""
        return tuple(self.server_state) if self.broadcast is None else self.broadcast

    @property
    def read_state(self) -> tuple[str, ...]:
        """Names of the client state that `view.client` has."""
        return tuple(name for name in self.client_state if name not in self.write_only)

    @property
    def has_own_models(self) -> bool:
        """Whether clients have models of their own without any tuning."""
        return bool(self.personal or self.own.state or self.own.logits or self.buffers == "local")
