"""Linear layers: one batched product."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedblade.engines.layers._base import Lane, Shared, rule


@rule(nn.Linear)
def linear(module: nn.Module, tensors: Mapping[str, Tensor], inputs: Lane, shared: Shared) -> Lane:  # noqa: ARG001
    """X Wᵀ + b for each client: [clients, …, in] to [clients, …, out]."""
    values = inputs.split(shared.clients)
    rows = values.reshape(shared.clients, -1, values.shape[-1])
    weight = tensors["weight"].mT
    bias = tensors.get("bias")
    outputs = torch.bmm(rows, weight) if bias is None else torch.baddbmm(bias[:, None], rows, weight)
    return Lane(outputs.reshape(*values.shape[:-1], weight.shape[-1]))
