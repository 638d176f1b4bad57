"""Convolutions: groups keep the clients apart."""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedblade.engines.layers import _on_gpu
from fedblade.engines.layers._base import Activation, Shared, rule


@rule(nn.Conv2d)
def convolution(module: nn.Module, tensors: Mapping[str, Tensor], inputs: Activation, shared: Shared) -> Activation:
    """A convolution over clients·channels with as many groups per client as the module has."""
    conv = cast("nn.Conv2d", module)
    if _on_gpu.is_on_gpu(inputs.value):
        by_kernels = _on_gpu.convolution(conv, tensors, inputs, shared)
        if by_kernels is not None:
            return Activation(by_kernels, folded=True)
    weight = tensors["weight"].flatten(0, 1).contiguous(memory_format=torch.channels_last)
    bias = tensors["bias"].flatten() if "bias" in tensors else None
    maps, groups = inputs.fold(), conv.groups * shared.clients
    if conv.padding_mode == "zeros":
        outputs = functional.conv2d(maps, weight, bias, conv.stride, conv.padding, conv.dilation, groups)
    else:
        wide = functional.pad(maps, conv._reversed_padding_repeated_twice, mode=conv.padding_mode)
        outputs = functional.conv2d(wide, weight, bias, conv.stride, 0, conv.dilation, groups)
    return Activation(outputs, folded=True)
