"""Averaging: plain, with momentum on the server, of normalised updates, with dynamic regularisation, extrapolated."""

from fedblade.core.state import ServerState
from fedblade.core.sums import Sums
from fedblade.core.tree import Tree, tree_dot, tree_norm
from fedblade.server._add import accumulate, add_to, keep_number, mean_update


def average(state: ServerState, sums: Sums) -> ServerState:
    """Weighted mean w + Σ_k a_k Δ_k / Σ_k a_k in float64, then cast; likewise for statistics; maximum for counters."""
    buffers = dict(state.buffers)
    if "buffers" in sums:
        total = sums.scalar("weight")
        means = {name: leaf / total for name, leaf in sums["buffers"].items()}
        for name, value in (means | sums["counters"]).items():
            buffers[name] = value.to(buffers[name].dtype)
    return state.replace(params=add_to(state.params, mean_update(sums)), buffers=buffers)


def momentum(state: ServerState, sums: Sums, *, rho: float, gain: float, rate: float) -> ServerState:
    """Momentum step M ← ρ·M + gain·Δ̄ and w ← w + rate·M in float64, then cast; statistics are averaged.

    M is the server state `momentum`, over the parameters that travel.
    """
    old = state.extra["momentum"]
    new = {name: rho * old[name].double() + gain * mean for name, mean in mean_update(sums).items()}
    params = add_to(state.params, {name: rate * leaf for name, leaf in new.items()})
    kept = old | {name: leaf.to(old[name].dtype) for name, leaf in new.items()}
    return average(state, sums).replace(params=params, extra={**state.extra, "momentum": kept})


def average_normalised(state: ServerState, sums: Sums) -> ServerState:
    """Normalised step w ← w + (Σ_k a'_k a_k)·Σ_k a'_k Δ_k/a_k, with a'_k a client's share and a_k its effective steps.

    Reads the sums `normalised` (weight·Δ_k/a_k), `steps` (weight·a_k) and `step_range` (the maxima of a_k and −a_k),
    whose ratio max/min becomes the server state `step_ratio`. Statistics are averaged as usual.
    """
    mean_steps = sums.scalar("steps") / sums.scalar("weight")
    change = {name: mean_steps * leaf for name, leaf in sums["normalised"].items()}
    new = average(state, Sums({**sums.trees, "delta": change}, sums.reduce))
    steps = sums["step_range"]
    return keep_number(new, "step_ratio", float(steps["most"]) / -float(steps["least"]))


def average_less_h(state: ServerState, sums: Sums, *, alpha: float) -> ServerState:
    """Dynamic step: h ← h + Σ_k (change of h_k)/K, then w ← weighted mean − h/α; statistics are averaged.

    Reads the sum `h`, (change of h_k)/K without weights.
    """
    new = accumulate(average(state, sums), sums, "h")
    h = new.extra["h"]
    step = {name: mean - h[name].double() / alpha for name, mean in mean_update(sums).items()}
    return new.replace(params=add_to(state.params, step))


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
