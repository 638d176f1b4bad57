"""Averaging of updates that were divided by the clients' step counts."""

from fedblade.core.state import ServerState
from fedblade.core.sums import Sums
from fedblade.server._add import keep_number
from fedblade.server._average import average


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
