"""Normalisation within a sample: over groups of channels, or over the last axes."""

from collections.abc import Mapping
from typing import cast

from torch import Tensor, nn
from torch.nn import functional

from fedblade.engines.layers._base import Activation, Shared, rule


@rule(nn.GroupNorm)
def group_norm(module: nn.Module, tensors: Mapping[str, Tensor], inputs: Activation, shared: Shared) -> Activation:
    """Normalise groups of channels; maps [batch, clients·channels, …] have the groups of all clients."""
    norm = cast("nn.GroupNorm", module)
    flat = not inputs.folded and inputs.value.dim() == 3
    maps = inputs.value.transpose(0, 1).flatten(1) if flat else inputs.fold()
    weight, bias = (tensors[name].flatten() if name in tensors else None for name in ("weight", "bias"))
    outputs = functional.group_norm(maps, norm.num_groups * shared.clients, weight, bias, norm.eps)
    if flat:
        return Activation(outputs.reshape(len(outputs), shared.clients, -1).transpose(0, 1))
    return Activation(outputs, folded=True)


@rule(nn.LayerNorm)
def layer_norm(module: nn.Module, tensors: Mapping[str, Tensor], inputs: Activation, shared: Shared) -> Activation:
    """Normalise the last axes, then scale and shift with each client's own."""
    norm = cast("nn.LayerNorm", module)
    values = inputs.split(shared.clients)
    outputs = functional.layer_norm(values, norm.normalized_shape, eps=norm.eps)
    between = (1,) * (values.dim() - 1 - len(norm.normalized_shape))
    if "weight" in tensors:
        outputs = outputs * tensors["weight"].reshape(shared.clients, *between, *norm.normalized_shape)
    if "bias" in tensors:
        outputs = outputs + tensors["bias"].reshape(shared.clients, *between, *norm.normalized_shape)
    return Activation(outputs)
