"""Clients' states on the training device."""

from collections.abc import Sequence

from fedblade.core.plan import ClientTask
from fedblade.core.problem import Problem
from fedblade.core.state import ClientStore
from fedblade.core.timeline import timed
from fedblade.core.tree import State, tree_map


def load_states(
    problem: Problem, store: ClientStore, tasks: Sequence[ClientTask], before_round: int
) -> list[State | None]:
    """Clients' states on the training device; None for a client that keeps none.

    States that no step reads are loaded for clients without a step only, because these keep what they have.
    """
    if not problem.reads_state and all(task.num_steps for task in tasks):
        return [None] * len(tasks)
    with timed("load"):
        kept = store.get_all([task.client for task in tasks], before_round)
        return [on_device(problem, state) for state in kept]


def on_device(problem: Problem, state: State | None) -> State | None:
    """A state on the training device."""
    if state is None:
        return None
    device = problem.samples.labels.device
    return {name: tree_map(lambda leaf: leaf.to(device), tree) for name, tree in state.items()}
