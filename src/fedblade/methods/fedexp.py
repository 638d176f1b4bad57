"""FedExP: extrapolation on the server (Jhunjhunwala et al., ICLR 2023)."""

import math
from dataclasses import replace
from functools import partial

from fedblade import payloads
from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.core.state import ServerState
from fedblade.core.sums import Sum
from fedblade.core.tree import Tree, tree_dot
from fedblade.core.views import EndView
from fedblade.methods.fedavg import fedavg
from fedblade.server import extrapolate, one


def _squared_norm(view: EndView) -> Tree:
    """a_k·‖Δ_k‖² from the a_k·Δ_k that is sent."""
    sent = payloads.delta.of(view)
    return {"squared_norm": tree_dot(sent, sent) / view.weight}


def _server_rate(state: ServerState) -> float:
    return float(state.extra["server_rate"]["value"])


@methods.register(paper="arXiv:2301.09604")
def fedexp(eps: float = 1e-3) -> Method:
    """Lengthen the averaged update by how much the clients disagree.

    Objective: CE. Server: w ← w + η_g·Δ̄ with η_g = max(1, Σ_k a_k‖Δ_k‖² / (2(‖Δ̄‖² + ε))), which the history shows
    as `server_rate`. Statistics are averaged: extrapolated variances could be negative.
    Deviation: a_k is the run's weighting, which the paper takes equal.
    """
    if not 0 <= eps < math.inf:
        raise Misconfigured(f"eps={eps!r}: expected 0 or a small number above it, such as 0.001.")
    return replace(
        fedavg(),
        sums=(*payloads.MODEL, Sum("squared_norm", _squared_norm, bound=1e9)),
        server=partial(extrapolate, eps=eps),
        server_state={"server_rate": one},
        broadcast=(),
        gauges={"server_rate": _server_rate},
    )
