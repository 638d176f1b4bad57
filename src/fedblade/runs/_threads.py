"""How many CPU threads a run uses, and how it holds its memory.

In a step of a few operations, threads only wait for each other, and on a busy machine they wait long. The choice
depends on the network and on how many clients train side by side; a machine with fewer cores uses those it has. The
number of threads can change the last bits of a sum, and nothing else.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedblade.engines.stacked import GROUP_SIZE
from fedblade.runs._memory import keep_freed_memory
from fedblade.runs._operations import step_operations
from fedblade.runs._setup import Setup

_WORTH_A_THREAD = 2e8
"""Floating-point operations of a step that keep one more thread busy."""


@contextmanager
def fitting_threads(setup: Setup) -> Iterator[None]:
    """As many threads as a step can use while a run trains on the CPU; the caller's number is put back."""
    before = torch.get_num_threads()
    try:
        if setup.test_order.device.type == "cpu":
            keep_freed_memory()
            torch.set_num_threads(min(before, max(1, math.ceil(_operations(setup) / _WORTH_A_THREAD))))
        yield
    finally:
        torch.set_num_threads(before)


def _operations(setup: Setup) -> float:
    """Operations of a step, of all clients that make it together."""
    federation = setup.config.federation
    together = min(GROUP_SIZE, federation.clients_per_round) if setup.engine.name == "stacked" else 1
    return together * step_operations(setup.problem, setup.start, setup.config.local.batch_size)
