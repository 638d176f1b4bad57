"""Linear layers: one batched product."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedblade.engines.layers._base import Activation, Shared, rule


@rule(nn.Linear)
def linear(module: nn.Module, tensors: Mapping[str, Tensor], inputs: Activation, shared: Shared) -> Activation:  # noqa: ARG001
    """X Wᵀ + b for each client: [clients, …, in] to [clients, …, out]."""
    values = inputs.split(shared.clients)
    rows = values.reshape(shared.clients, -1, values.shape[-1])
    weight, bias = tensors["weight"], tensors.get("bias")
    if rows.is_cuda or rows.dtype != weight.dtype or torch.is_autocast_enabled("cpu"):
        outputs = torch.bmm(rows, weight.mT) if bias is None else torch.baddbmm(bias[:, None], rows, weight.mT)
    else:
        outputs = _Product.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    return Activation(outputs.reshape(*values.shape[:-1], weight.shape[1]))


class _Product(torch.autograd.Function):
    """X Wᵀ + b. The gradient of W has W's order in memory, which makes the optimiser's step several times faster."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return torch.bmm(rows, weight.mT) if bias is None else torch.baddbmm(bias[:, None], rows, weight.mT)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return (
            torch.bmm(upstream, weight) if wanted[0] else None,
            torch.bmm(upstream.mT, rows) if wanted[1] else None,
            upstream.sum(1) if wanted[2] else None,
        )
