"""How many CPU threads a run uses.

In a network of a few operations, threads only wait for each other, and on a busy machine they wait long. The choice
depends on the network alone, because the number of threads can change the last bits of a sum.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fedblade.experiment._setup import Setup

_SMALL_STEP = 2e8
"""Floating-point operations of a training step below which one thread is best."""


@contextmanager
def fitting_threads(setup: Setup) -> Iterator[None]:
    """One thread while a small network trains on the CPU; the caller's number is put back."""
    before = torch.get_num_threads()
    try:
        if setup.test_order.device.type == "cpu" and step_operations(setup) < _SMALL_STEP:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)


@torch.no_grad()
def step_operations(setup: Setup) -> float:
    """Operations of one training step of the body: 6 per product of a weight and an input, over the batch."""
    products = 0

    def count(module: nn.Module, _inputs: Any, output: Any) -> None:
        nonlocal products
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and weight.dim() > 1 and isinstance(output, Tensor):
            products += output.numel() * weight[0].numel()

    problem, start = setup.problem, setup.start
    hooks = [module.register_forward_hook(count) for module in problem.network.body.modules()]
    try:
        example, _ = problem.samples.batch(setup.test_order.new_zeros(2))
        problem.network.features(start.params, start.buffers, example, training=False)
    finally:
        for hook in hooks:
            hook.remove()
    return 6.0 * products / 2 * setup.config.local.batch_size
