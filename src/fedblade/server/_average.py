"""Weighted averaging, the server step of most methods."""

from fedblade.core.state import ServerState
from fedblade.core.sums import Sums


def average(state: ServerState, sums: Sums) -> ServerState:
    """Weighted mean w + Σ_k a_k Δ_k / Σ_k a_k in float64, then cast; likewise for statistics; maximum for counters."""
    total = sums.scalar("weight")
    params = dict(state.params)
    for name, change in sums["delta"].items():
        params[name] = (params[name].double() + change / total).to(params[name].dtype)
    buffers = dict(state.buffers)
    if "buffers" in sums:
        means = {name: leaf / total for name, leaf in sums["buffers"].items()}
        for name, value in (means | sums["counters"]).items():
            buffers[name] = value.to(buffers[name].dtype)
    return state.replace(params=params, buffers=buffers)
