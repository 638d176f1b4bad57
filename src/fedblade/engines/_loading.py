"""Clients' states on the training device."""

from collections.abc import Sequence

from fedblade.core.problem import Problem
from fedblade.core.state import ClientStore
from fedblade.core.timeline import timed
from fedblade.core.tree import State, tree_map


def load_states(problem: Problem, store: ClientStore, clients: Sequence[int], before_round: int) -> list[State | None]:
    """Clients' states on the training device; None for a client that keeps none, or none that a round reads."""
    if not problem.reads_state:
        return [None] * len(clients)
    with timed("load"):
        return [on_device(problem, state) for state in store.get_all(clients, before_round)]


def on_device(problem: Problem, state: State | None) -> State | None:
    """A state on the training device."""
    if state is None:
        return None
    device = problem.samples.labels.device
    return {name: tree_map(lambda leaf: leaf.to(device), tree) for name, tree in state.items()}
