"""Methods as a user would write them, used by reference: one with state on clients and server, two that break."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from fedblade import payloads
from fedblade.core.method import Method, zeros
from fedblade.core.state import ServerState
from fedblade.core.sums import Sum, Sums
from fedblade.core.terms import GradientTerm, Term, TermValue
from fedblade.core.tree import Tree, tree_map
from fedblade.core.views import EndView, StepView
from fedblade.heads import LinearHead
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg
from fedblade.server import average


@dataclass(frozen=True, kw_only=True)
class Drift(GradientTerm):
    """The gap c - c_k, added to the gradient."""

    name: ClassVar[str] = "drift"

    def gradient(self, view: StepView) -> Tree:
        """The server's control less the client's."""
        return tree_map(torch.sub, view.server["c"], view.client["c"])


def _new_control(view: EndView) -> Tree:
    return tree_map(
        lambda own, c, start, end: own - c + (start - end) / (view.effective_steps * view.lr),
        view.client["c"],
        view.server["c"],
        view.anchor,
        view.params,
    )


def _control_change(view: EndView) -> Tree:
    return tree_map(lambda new, old: (new - old) / view.population, _new_control(view), view.client["c"])


def _server(state: ServerState, sums: Sums) -> ServerState:
    control = tree_map(lambda c, change: c + change.to(c), state.extra["c"], sums["control"])
    return average(state, sums).replace(extra={**state.extra, "c": control})


def scaffold() -> Method:
    """Control variates kept by the clients and the server."""
    return Method(
        head=LinearHead(),
        losses=(CrossEntropy(), Drift()),
        sums=(*payloads.MODEL, Sum("control", _control_change, bound=1e3)),
        server=_server,
        client_state={"c": zeros},
        client_update={"c": _new_control},
        server_state={"c": zeros},
    )


@dataclass(frozen=True, kw_only=True)
class Breaking(Term):
    """Nothing at first, NaN from a round on."""

    name: ClassVar[str] = "breaking"
    from_round: int

    def __call__(self, view: StepView) -> TermValue:
        """0·z or NaN·z."""
        return TermValue(view.features.sum() * (math.nan if view.round + 1 >= self.from_round else 0.0))


def breaks(from_round: int = 4) -> Method:
    """A method whose second term turns NaN in round `from_round`."""
    return replace(fedavg(), losses=(CrossEntropy(), Breaking(from_round=from_round)))
