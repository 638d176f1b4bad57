"""How many CPU threads a run uses, and the settings that training and measuring need around them.

In a step of a few operations threads mostly wait for each other. The number of threads therefore depends on the network
and on how many clients train side by side. It can change the last bits of a sum, and nothing else.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from fedblade.engines.stacked import GROUP_SIZE
from fedblade.runs._device import float32_products
from fedblade.runs._memory import keep_freed_memory
from fedblade.runs._operations import step_operations
from fedblade.runs._setup import Setup
from fedblade.runs._spinning import sleeping_when_busy

_OPERATIONS_PER_THREAD = 2e8
"""Floating-point operations of a step that keep one more thread busy."""
_WIDE = 2048
"""A covariance of so many features has 32 MB. Metrics add up several per batch: page faults are half of the time."""


@contextmanager
def compute_settings(setup: Setup) -> Iterator[None]:
    """Train and measure in this block: with a fitting number of threads, and the precision that the run asks for."""
    with fitting_threads(setup), float32_products(tf32=setup.config.general.tf32):
        yield


@contextmanager
def fitting_threads(setup: Setup) -> Iterator[None]:
    """On a CPU, use as many threads as a step keeps busy. The old number returns at the end of the block."""
    before = torch.get_num_threads()
    try:
        if setup.test_order.device.type == "cpu":
            keep_freed_memory(of_any_size=setup.problem.network.dim >= _WIDE)
            torch.set_num_threads(min(before, max(1, math.ceil(_operations(setup) / _OPERATIONS_PER_THREAD))))
        with sleeping_when_busy() if setup.test_order.device.type == "cpu" else nullcontext():
            yield
    finally:
        torch.set_num_threads(before)


def _operations(setup: Setup) -> float:
    """Operations of one step, for all clients that train side by side."""
    federation = setup.config.federation
    clients = min(GROUP_SIZE, federation.clients_per_round) if setup.engine.name == "stacked" else 1
    return clients * step_operations(setup.problem, setup.start, setup.config.local.batch_size)
