"""FedNova: average updates per step (Wang et al., NeurIPS 2020)."""

from dataclasses import replace

import torch

from fedblade import payloads
from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.core.state import ServerState
from fedblade.core.sums import Sent, Sum
from fedblade.core.tree import Tree, tree_map
from fedblade.core.views import EndView
from fedblade.methods.fedavg import fedavg
from fedblade.server import average_normalised, one


def _normalised(view: EndView) -> Tree:
    return tree_map(lambda change: change / view.effective_steps, payloads.delta.of(view))


def _steps(view: EndView | Sent) -> Tree:
    return {"steps": torch.as_tensor(view.weight * view.effective_steps, dtype=torch.float64)}


def _step_range(view: EndView | Sent) -> Tree:
    """The bounds of a_k, as maxima: the maximum of −a_k is minus the smallest a_k."""
    steps = torch.as_tensor(view.effective_steps, dtype=torch.float64)
    return {"most": steps, "least": -steps}


def _step_ratio(state: ServerState) -> float:
    return float(state.extra["step_ratio"]["value"])


@methods.register(paper="arXiv:2007.07481")
def fednova() -> Method:
    """Normalise updates by the effective number of local steps.

    Objective: CE. After τ_k steps a_k = τ_k, or [τ_k − ρ(1−ρ^τ_k)/(1−ρ)]/(1−ρ) with momentum ρ.
    Server: w ← w + (Σ_k a'_k a_k)·Σ_k a'_k Δ_k/a_k, with a'_k the share of samples (or the run's weighting).
    The update of a client with few steps is scaled up: the history shows `step_ratio`, max_k a_k / min_k a_k.
    """
    normalised = Sum("normalised", _normalised, bound=1e3)
    return replace(
        fedavg(),
        sums=(
            *(normalised if payload is payloads.delta else payload for payload in payloads.MODEL),
            Sum("steps", _steps, bound=1e9, implied=_steps),
            Sum("step_range", _step_range, bound=1e9, reduce="max", implied=_step_range),
        ),
        server=average_normalised,
        server_state={"step_ratio": one},
        broadcast=(),
        gauges={"step_ratio": _step_ratio},
    )
