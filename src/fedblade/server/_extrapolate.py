"""Extrapolation of the averaged update."""

from fedblade.core.state import ServerState
from fedblade.core.sums import Sums
from fedblade.core.tree import tree_dot
from fedblade.server._add import add_to, keep_number
from fedblade.server._average import average


def extrapolate(state: ServerState, sums: Sums, *, eps: float) -> ServerState:
    """Extrapolated step w ← w + η·Δ̄ with η = max(1, Σ_k a_k‖Δ_k‖² / (2(‖Δ̄‖² + ε))), kept as `server_rate`.

    Statistics are averaged. Reads the sum `squared_norm` (weight·‖Δ_k‖²). With ε = 0 a mean update of zero has η = 1.
    """
    total = sums.scalar("weight")
    mean = {name: change / total for name, change in sums["delta"].items()}
    below = 2 * (float(tree_dot(mean, mean)) + eps)
    rate = max(1.0, sums.scalar("squared_norm") / total / below) if below > 0 else 1.0
    params = add_to(state.params, {name: rate * leaf for name, leaf in mean.items()})
    return keep_number(average(state, sums).replace(params=params), "server_rate", rate)
