"""FedExP: extrapolation on the server (Jhunjhunwala et al., ICLR 2023)."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor

from fedblade import payloads
from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.method import InitView, Method
from fedblade.core.registry import methods
from fedblade.core.state import ServerState
from fedblade.core.sums import Sum, Sums
from fedblade.core.tree import Tree, tree_clone, tree_dot, tree_map, tree_norm
from fedblade.methods.fedavg import fedavg
from fedblade.server import extrapolate, one, shorten

Rule = Literal["paper", "released"]


def _squared_norm(delta: Tree, weight: float | Tensor) -> Tree:
    """a_k·‖Δ_k‖², computed from the payload a_k·Δ_k."""
    return {"squared_norm": tree_dot(delta, delta) / weight}


def _norm(delta: Tree, weight: float | Tensor) -> Tree:
    """‖Δ_k‖, computed from the payload a_k·Δ_k, and 1, so that the server can compute the plain mean."""
    norm = tree_norm(delta) / weight
    return {"norm": norm, "clients": torch.ones_like(norm)}


def _sum_of_delta(name: str, of_delta: Callable[[Tree, float | Tensor], Tree], bound: float) -> Sum:
    """A sum that is computed from the payload `delta` and the weight, so that a server can compute it too."""
    return Sum(
        name,
        lambda view: of_delta(payloads.delta.of(view), view.weight),
        bound,
        implied=lambda sent: of_delta(dict(sent.sums[payloads.delta.name]), sent.weight),
    )


def _population(view: InitView) -> Tree:
    return {"value": torch.tensor(float(view.population), dtype=torch.float64)}


def _server_rate(state: ServerState) -> float:
    return float(state.extra["server_rate"]["value"])


def _params(view: InitView) -> Tree:
    return tree_clone(view.params)


def _midpoint(state: ServerState) -> ServerState:
    """The mean of the last two iterates, with the statistics of the last one."""
    mean = tree_map(
        lambda new, old: ((new.double() + old.double()) / 2).to(new.dtype), state.params, state.extra["previous"]
    )
    return state.replace(params=mean)


def _with_midpoint(method: Method) -> Method:
    """The method that keeps the previous iterate and measures the mean of the last two."""

    def server(state: ServerState, sums: Sums) -> ServerState:
        new = method.server(state, sums)
        return new.replace(extra={**new.extra, "previous": state.params})

    kept = {**method.server_state, "previous": _params}
    return replace(method, server=server, server_state=kept, evaluated=_midpoint)


@methods.register(paper="arXiv:2301.09604", tune={"eps": (0.0001, 0.001, 0.01, 0.1)})
def fedexp(eps: float = 1e-3, eval_average_last2: bool = False, rule: Rule = "paper") -> Method:
    """Lengthen the averaged update, the more the clients disagree.

    Objective: CE. Server: w ← w + η_g·Δ̄ with η_g = max(1, Σ_k a_k‖Δ_k‖² / (2(‖Δ̄‖² + ε))), which the history shows
    as `server_rate`. Statistics are averaged: extrapolated variances could be negative.
    `eval_average_last2` measures and saves the mean of the last two iterates, as the paper does.
    With `rule = "released"`, as in the code of FedDr+, η_g = min(1, mean_k‖Δ_k‖ / (2(‖Δ̄‖ + K·ε))) with norms that are
    not squared, a plain mean over the cohort and K the number of all clients: it never lengthens. That code includes
    statistics in the norms and shortens them too.
    Deviation: a_k is the run's weighting; the paper has equal weights. The authors' code adds S·ε instead of ε to
    ‖Δ̄‖², with S the size of the cohort.
    """
    if not 0 <= eps < math.inf:
        raise Misconfigured(f"eps={eps!r}: expected 0 or a small number above 0, such as 0.001.")
    if rule not in get_args(Rule):
        raise Misconfigured(f"unknown rule {rule!r}.{nearest(str(rule), get_args(Rule))}")
    released = rule == "released"
    norms = _sum_of_delta("norm", _norm, 1e5) if released else _sum_of_delta("squared_norm", _squared_norm, 1e9)
    method = replace(
        fedavg(),
        sums=(*payloads.MODEL, norms),
        server=partial(shorten if released else extrapolate, eps=eps),
        server_state={"server_rate": one} | ({"population": _population} if released else {}),
        broadcast=(),
        gauges={"server_rate": _server_rate},
    )
    return _with_midpoint(method) if eval_average_last2 else method
