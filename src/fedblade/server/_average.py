"""Weighted averaging, the server step of most methods."""

from fedblade.core.state import ServerState
from fedblade.core.sums import Sums
from fedblade.server._add import add_to, mean_update


def average(state: ServerState, sums: Sums) -> ServerState:
    """Weighted mean w + Σ_k a_k Δ_k / Σ_k a_k in float64, then cast; likewise for statistics; maximum for counters."""
    buffers = dict(state.buffers)
    if "buffers" in sums:
        total = sums.scalar("weight")
        means = {name: leaf / total for name, leaf in sums["buffers"].items()}
        for name, value in (means | sums["counters"]).items():
            buffers[name] = value.to(buffers[name].dtype)
    return state.replace(params=add_to(state.params, mean_update(sums)), buffers=buffers)
