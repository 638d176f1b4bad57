"""How many operations a training step needs."""

from typing import Any

import torch
from torch import Tensor, nn

from fedblade.core.problem import Problem
from fedblade.core.state import ServerState


@torch.no_grad()
def step_operations(problem: Problem, start: ServerState, batch_size: int) -> float:
    """Operations of one training step of the body: 6 for each product of a weight and an input, over the batch."""
    products = 0

    def count(module: nn.Module, _inputs: Any, output: Any) -> None:
        nonlocal products
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and weight.dim() > 1 and isinstance(output, Tensor):
            products += output.numel() * weight[0].numel()

    hooks = [module.register_forward_hook(count) for module in problem.network.body.modules()]
    try:
        first_two = torch.zeros(2, dtype=torch.int64, device=problem.samples.labels.device)
        example, _ = problem.samples.batch(first_two)
        body = problem.network.complete(start.params, start.fixed)
        problem.network.features(body, start.buffers, example, training=False)
    finally:
        for hook in hooks:
            hook.remove()
    return 6.0 * products / 2 * batch_size
