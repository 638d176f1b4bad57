"""Pooling: channels do not mix, so that folded maps can be pooled as they are."""

from collections.abc import Mapping
from typing import cast

from torch import Tensor, nn
from torch.nn import functional

from fedblade.engines.layers._base import Activation, Shared, rule
from fedblade.engines.layers._norm_pool import pooled


@rule(nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveMaxPool2d)
def pooling(module: nn.Module, _tensors: Mapping[str, Tensor], inputs: Activation, shared: Shared) -> Activation:
    """The module itself on folded maps, together with the normalisation before it if that was deferred."""
    if inputs.norm is not None:
        return Activation(
            pooled(inputs.value, inputs.norm, cast("nn.MaxPool2d", module), relu=shared.relu), folded=True
        )
    outputs = module(inputs.fold())
    return Activation(outputs.relu_() if shared.relu else outputs, folded=True)


@rule(nn.AdaptiveAvgPool2d)
def adaptive_mean(module: nn.Module, _tensors: Mapping[str, Tensor], inputs: Activation, _shared: Shared) -> Activation:
    """Mean over windows; windows of one size use plain pooling, which is many times faster on a CPU."""
    maps, size = inputs.fold(), cast("nn.AdaptiveAvgPool2d", module).output_size
    height, width = size if isinstance(size, tuple) else (size, size)
    rows, columns = maps.shape[2:]
    if height and width and rows % height == 0 and columns % width == 0:
        return Activation(functional.avg_pool2d(maps, (rows // height, columns // width)), folded=True)
    return Activation(module(maps), folded=True)
