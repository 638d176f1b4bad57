"""FedExP: extrapolation on the server (Jhunjhunwala et al., ICLR 2023)."""

import math
from dataclasses import replace
from functools import partial

from fedblade import payloads
from fedblade.core.errors import Misconfigured
from fedblade.core.method import InitView, Method
from fedblade.core.registry import methods
from fedblade.core.state import ServerState
from fedblade.core.sums import Sum, Sums
from fedblade.core.tree import Tree, tree_clone, tree_dot, tree_map
from fedblade.core.views import EndView
from fedblade.methods.fedavg import fedavg
from fedblade.server import extrapolate, one


def _squared_norm(view: EndView) -> Tree:
    """a_k·‖Δ_k‖² from the a_k·Δ_k that is sent."""
    sent = payloads.delta.of(view)
    return {"squared_norm": tree_dot(sent, sent) / view.weight}


def _server_rate(state: ServerState) -> float:
    return float(state.extra["server_rate"]["value"])


def _params(view: InitView) -> Tree:
    return tree_clone(view.params)


def _midpoint(state: ServerState) -> ServerState:
    """The model halfway between the last two iterates, with the last one's statistics."""
    mean = tree_map(
        lambda new, old: ((new.double() + old.double()) / 2).to(new.dtype), state.params, state.extra["previous"]
    )
    return state.replace(params=mean)


def _with_midpoint(method: Method) -> Method:
    """The method that keeps the previous iterate and is measured at the mean of the last two."""

    def server(state: ServerState, sums: Sums) -> ServerState:
        new = method.server(state, sums)
        return new.replace(extra={**new.extra, "previous": state.params})

    kept = {**method.server_state, "previous": _params}
    return replace(method, server=server, server_state=kept, evaluated=_midpoint)


@methods.register(paper="arXiv:2301.09604")
def fedexp(eps: float = 1e-3, eval_average_last2: bool = False) -> Method:
    """Lengthen the averaged update by how much the clients disagree.

    Objective: CE. Server: w ← w + η_g·Δ̄ with η_g = max(1, Σ_k a_k‖Δ_k‖² / (2(‖Δ̄‖² + ε))), which the history shows
    as `server_rate`. Statistics are averaged: extrapolated variances could be negative.
    `eval_average_last2` measures and saves the mean of the last two iterates, as the paper does.
    Deviation: a_k is the run's weighting, which the paper takes equal.
    """
    if not 0 <= eps < math.inf:
        raise Misconfigured(f"eps={eps!r}: expected 0 or a small number above it, such as 0.001.")
    method = replace(
        fedavg(),
        sums=(*payloads.MODEL, Sum("squared_norm", _squared_norm, bound=1e9)),
        server=partial(extrapolate, eps=eps),
        server_state={"server_rate": one},
        broadcast=(),
        gauges={"server_rate": _server_rate},
    )
    return _with_midpoint(method) if eval_average_last2 else method
