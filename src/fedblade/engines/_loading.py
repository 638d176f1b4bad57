"""Clients' states on the training device."""

from fedblade.core.problem import Problem
from fedblade.core.state import ClientStore
from fedblade.core.timeline import timed
from fedblade.core.tree import State, tree_map


def load_state(problem: Problem, store: ClientStore, client: int, before_round: int) -> State | None:
    """A client's state on the training device; None if the client keeps none."""
    with timed("load"):
        return on_device(problem, store.get(client, before_round))


def on_device(problem: Problem, state: State | None) -> State | None:
    """A state on the training device."""
    if state is None:
        return None
    device = problem.samples.labels.device
    return {name: tree_map(lambda leaf: leaf.to(device), tree) for name, tree in state.items()}
