"""Averaging with momentum on the server."""

from fedblade.core.state import ServerState
from fedblade.core.sums import Sums
from fedblade.server._add import add_to, mean_update
from fedblade.server._average import average


def momentum(state: ServerState, sums: Sums, *, rho: float, gain: float, rate: float) -> ServerState:
    """Momentum step M ← ρ·M + gain·Δ̄ and w ← w + rate·M in float64, then cast; statistics are averaged.

    M is the server state `momentum`, over the parameters that travel.
    """
    old = state.extra["momentum"]
    new = {name: rho * old[name].double() + gain * mean for name, mean in mean_update(sums).items()}
    params = add_to(state.params, {name: rate * leaf for name, leaf in new.items()})
    kept = old | {name: leaf.to(old[name].dtype) for name, leaf in new.items()}
    return average(state, sums).replace(params=params, extra={**state.extra, "momentum": kept})
