"""NaN and infinity stop a run: what is checked, and which client, round and number the error names."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from fedblade.core.errors import NonFinite
from fedblade.core.plan import ClientTask
from fedblade.core.state import ServerState
from fedblade.core.tree import State, Tree, tree_is_finite, tree_select


def refuse_non_finite(trees: Iterable[tuple[str, Tree]], message: Callable[[str], str]) -> None:
    """Raise `NonFinite` with `message(name)` for the first tree that holds NaN or infinity."""
    for name, tree in trees:
        if not tree_is_finite(tree):
            raise NonFinite(message(name))


def refuse_non_finite_sums(sums: Mapping[str, Tree], client: int, round_: int) -> None:
    """Stop the run if a client's contribution to a sum is not finite."""
    refuse_non_finite(
        sums.items(),
        lambda name: (
            f"client {client} produced a non-finite sum '{name}' in round {round_ + 1}. "
            f"Lower the learning rate or the weight of the method's terms, and start again with --restart."
        ),
    )


def refuse_non_finite_state(state: State, task: ClientTask) -> None:
    """Stop the run if the state that a client would keep is not finite."""
    refuse_non_finite(
        state.items(),
        lambda name: (
            f"client {task.client} would keep a non-finite '{name.lstrip('_')}' after round {task.round + 1}. "
            f"Lower the learning rate (optimizer.lr) or the weights of the terms."
        ),
    )


def refuse_non_finite_server(state: ServerState, shared: frozenset[str]) -> None:
    """Stop the run before a server state that is not finite is evaluated, recorded or saved."""
    statistics = tree_select(state.buffers, shared)
    refuse_non_finite(
        (("parameters", state.params), ("statistics", statistics), *state.extra.items()),
        lambda part: (
            f"the server's {part} became non-finite in round {state.round}. "
            f"Lower the learning rate (optimizer.lr) or the strength of the server's step."
        ),
    )


def refuse_non_finite_trace(trace: Sequence[Mapping[str, Tensor]], tasks: Sequence[ClientTask]) -> None:
    """Stop the run at the lowest client id, and there at the first step, that logged a number which is not finite."""
    for position, task in sorted(enumerate(tasks), key=lambda numbered: numbered[1].client):
        steps = [entry for entry in trace if len(next(iter(entry.values()))) > position]
        for number, entry in enumerate(steps, start=1):
            for name, value in sorted(entry.items()):
                if not bool(torch.isfinite(value[position])):
                    raise NonFinite(
                        f"term '{name.removeprefix('loss_')}' became non-finite on client {task.client} in round "
                        f"{task.round + 1}, local step {number} of {task.num_steps}. "
                        f"Lower the learning rate (optimizer.lr) or the term's weight."
                    )
