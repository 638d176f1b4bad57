"""A head whose class vectors the server moves towards the clients' features."""

import torch

from fedblade.core.state import ServerState
from fedblade.core.sums import Sums
from fedblade.heads import normalise


def move_prototypes(state: ServerState, sums: Sums, *, rho: float) -> ServerState:
    """Prototype step P_c ← normalise(ρ·P_c + (1−ρ)·normalise(Σ_k n_{k,c} q_{k,c})) on the rows of `head.weight`.

    Reads the sum `directions`: `sum` Σ n·q and `count` Σ n. A class that no client of the cohort holds keeps its row.
    So does a class whose new row would be 0, which has no direction. With ρ = 1 the rows do not change.
    """
    if rho == 1:
        return state
    rows, sent = state.params["head.weight"], sums["directions"]
    moved = rho * rows.double() + (1 - rho) * normalise(sent["sum"])
    moves = (sent["count"] > 0) & (moved.norm(dim=1) > 1e-12)
    new = torch.where(moves[:, None], normalise(moved).to(rows.dtype), rows)
    return state.replace(params=state.params | {"head.weight": new})
