"""Extrapolation of the averaged update."""

from fedblade.core.state import ServerState
from fedblade.core.sums import Sums
from fedblade.core.tree import Tree, tree_dot, tree_norm
from fedblade.server._add import add_to, keep_number, mean_update
from fedblade.server._average import average


def extrapolate(state: ServerState, sums: Sums, *, eps: float) -> ServerState:
    """Extrapolated step w ← w + η·Δ̄ with η = max(1, Σ_k a_k‖Δ_k‖² / (2(‖Δ̄‖² + ε))), kept as `server_rate`.

    Statistics are averaged. Reads the sum `squared_norm` (weight·‖Δ_k‖²). With ε = 0 a mean update of zero has η = 1.
    """
    mean, total = mean_update(sums), sums.scalar("weight")
    denominator = 2 * (float(tree_dot(mean, mean)) + eps)
    rate = max(1.0, sums.scalar("squared_norm") / total / denominator) if denominator > 0 else 1.0
    return _at_rate(state, sums, mean, rate)


def shorten(state: ServerState, sums: Sums, *, eps: float) -> ServerState:
    """Shortened step w ← w + η·Δ̄ with η = min(1, mean_k‖Δ_k‖ / (2(‖Δ̄‖ + K·ε))), kept as `server_rate`.

    The mean of the norms is the plain mean over the cohort; K is the number of all clients, the server state
    `population`. Statistics are averaged. Reads the sum `norm` (‖Δ_k‖, and 1 for each client). With ε = 0 a mean update
    of zero has η = 1.
    """
    mean, sent = mean_update(sums), sums["norm"]
    denominator = 2 * (float(tree_norm(mean)) + float(state.extra["population"]["value"]) * eps)
    rate = min(1.0, float(sent["norm"] / sent["clients"]) / denominator) if denominator > 0 else 1.0
    return _at_rate(state, sums, mean, rate)


def _at_rate(state: ServerState, sums: Sums, mean: Tree, rate: float) -> ServerState:
    params = add_to(state.params, {name: rate * leaf for name, leaf in mean.items()})
    return keep_number(average(state, sums).replace(params=params), "server_rate", rate)
