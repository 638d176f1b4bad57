"""The server step of dynamic regularisation (FedDyn)."""

from fedblade.core.state import ServerState
from fedblade.core.sums import Sums
from fedblade.server._add import accumulate, add_to, mean_update
from fedblade.server._average import average


def average_less_h(state: ServerState, sums: Sums, *, alpha: float) -> ServerState:
    """Dynamic step: h ← h + Σ_k (change of h_k)/K, then w ← weighted mean − h/α; statistics are averaged.

    Reads the sum `h`, (change of h_k)/K without weights.
    """
    new = accumulate(average(state, sums), sums, "h")
    h = new.extra["h"]
    step = {name: mean - h[name].double() / alpha for name, mean in mean_update(sums).items()}
    return new.replace(params=add_to(state.params, step))
