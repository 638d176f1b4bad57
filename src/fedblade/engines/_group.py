"""Which clients train side by side, and in what order."""

from collections.abc import Sequence
from itertools import pairwise

import torch

from fedblade.core.plan import ClientTask


def longest_first(tasks: Sequence[ClientTask]) -> list[ClientTask]:
    """Clients by the number of their steps, so that the clients which still train are the first on the client axis."""
    return sorted(tasks, key=lambda task: ([-len(phase) for phase in task.phases], task.client))


def is_ordered_by_steps(tasks: Sequence[ClientTask]) -> bool:
    """Whether in every phase no client has more steps than the client before it."""
    return all(
        len(first.phases[i]) >= len(second.phases[i])
        for first, second in pairwise(tasks)
        for i in range(len(first.phases))
    )


# Tensors that are made in a caller's inference mode could not be trained with.
@torch.inference_mode(False)
def groups_of(tasks: Sequence[ClientTask], most: int) -> list[list[ClientTask]]:
    """Clients to train side by side, most steps first, so that the clients of a group end at about the same time.

    Clients that cannot be ordered by their steps in every phase train alone.
    """
    ordered = longest_first([task for task in tasks if task.num_steps])
    groups = [ordered[i : i + most] for i in range(0, len(ordered), most)]
    return [
        part for group in groups for part in ([group] if is_ordered_by_steps(group) else [[task] for task in group])
    ]
