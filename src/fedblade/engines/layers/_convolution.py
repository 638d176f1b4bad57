"""Convolutions: groups keep the clients apart."""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedblade.engines.layers._base import Lane, Shared, rule
from fedblade.engines.layers._pointwise import pointwise


@rule(nn.Conv2d)
def convolution(module: nn.Module, tensors: Mapping[str, Tensor], inputs: Lane, shared: Shared) -> Lane:
    """A convolution over clients·channels with as many groups per client as the module has."""
    conv = cast("nn.Conv2d", module)
    if inputs.value.is_cuda and _is_pointwise(conv):
        return _by_products(conv, tensors, inputs)
    weight = tensors["weight"].flatten(0, 1).contiguous(memory_format=torch.channels_last)
    bias = tensors["bias"].flatten() if "bias" in tensors else None
    maps, groups = inputs.fold(), conv.groups * shared.clients
    if conv.padding_mode == "zeros":
        outputs = functional.conv2d(maps, weight, bias, conv.stride, conv.padding, conv.dilation, groups)
    else:
        wide = functional.pad(maps, conv._reversed_padding_repeated_twice, mode=conv.padding_mode)
        outputs = functional.conv2d(wide, weight, bias, conv.stride, 0, conv.dilation, groups)
    return Lane(outputs, folded=True)


def _is_pointwise(conv: nn.Conv2d) -> bool:
    return conv.kernel_size == (1, 1) and conv.groups == 1 and conv.padding in ((0, 0), "valid")


def _by_products(conv: nn.Conv2d, tensors: Mapping[str, Tensor], inputs: Lane) -> Lane:
    """A 1×1 convolution as products of each client's pixels with its matrix."""
    maps = inputs.fold()
    if conv.stride != (1, 1):
        maps = maps[:, :, :: conv.stride[0], :: conv.stride[1]]
    weight = tensors["weight"][..., 0, 0]
    kind = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else weight.dtype
    outputs = pointwise(maps.to(kind), weight.to(kind))
    if "bias" in tensors:
        outputs = outputs + tensors["bias"].to(kind).reshape(1, -1, 1, 1)
    return Lane(outputs, folded=True)
