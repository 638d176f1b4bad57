"""Layers that are computed differently on a GPU: convolutions as products, and kernels of this library."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedblade.engines.layers._base import Activation, Norm, Running, Shared
from fedblade.engines.layers._pointwise import patches, pointwise

_SMALL_PATCH = 64
"""The largest number of inputs of an output pixel for which writing out all patches costs less than it saves."""


def is_on_gpu(tensor: Tensor) -> bool:
    """Whether the layers of a GPU compute with a tensor. Tests say so of a CPU's, where kernels are interpreted."""
    return tensor.is_cuda


def kernels_fit(maps: Tensor) -> bool:
    """Whether the kernels take these maps."""
    return is_on_gpu(maps) and maps.dim() == 4 and maps.dtype in (torch.float32, torch.bfloat16)


def is_depthwise(module: nn.Module) -> bool:
    """Whether a layer is a depthwise convolution that there are kernels for: 3×3, padded by one, of stride 1 or 2."""
    if type(module) is not nn.Conv2d:
        return False
    plain = module.padding_mode == "zeros" and module.dilation == (1, 1) and module.bias is None
    alone = module.groups == module.in_channels == module.out_channels
    shape = (module.kernel_size, module.padding) == ((3, 3), (1, 1))
    return plain and alone and shape and module.stride in ((1, 1), (2, 2))


def convolution(conv: nn.Conv2d, tensors: Mapping[str, Tensor], inputs: Activation, shared: Shared) -> Tensor | None:
    """Folded outputs of a convolution; None where torch's convolution is the better choice."""
    weight = tensors["weight"]
    kind = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else weight.dtype
    if is_depthwise(conv) and kernels_fit(inputs.fold()):
        return _depthwise(conv, weight, inputs, shared, kind)
    outputs = _by_products(conv, weight, inputs, kind)
    if outputs is not None and "bias" in tensors:
        outputs = outputs + tensors["bias"].to(kind).reshape(1, -1, 1, 1)
    return outputs


def _by_products(conv: nn.Conv2d, weight: Tensor, inputs: Activation, kind: torch.dtype) -> Tensor | None:
    """A 1×1 convolution, or one with small patches of the data, as products of each client's pixels with its matrix."""
    if conv.groups != 1 or isinstance(conv.padding, str):
        return None
    if conv.kernel_size == (1, 1) and conv.padding == (0, 0):
        maps = inputs.fold()
        if conv.stride != (1, 1):
            maps = maps[:, :, :: conv.stride[0], :: conv.stride[1]]
        return pointwise(maps.to(kind), weight.flatten(2).to(kind))
    size = weight[0, 0].numel()
    data = not inputs.folded and not inputs.value.requires_grad and inputs.value.dim() == 5
    if not data or size > _SMALL_PATCH or conv.dilation != (1, 1) or conv.padding_mode != "zeros":
        return None
    kernel, stride, padding = ((a, b) for a, b in (conv.kernel_size, conv.stride, conv.padding))
    maps = patches(inputs.value.to(kind), kernel, stride, padding)
    matrix = nn.functional.pad(weight.flatten(2).to(kind), (0, -size % 4))
    return pointwise(maps, matrix)


def _depthwise(conv: nn.Conv2d, weight: Tensor, inputs: Activation, shared: Shared, kind: torch.dtype) -> Tensor:
    from fedblade.engines.layers._depthwise import depthwise

    maps = inputs.fold() if inputs.norm is not None else inputs.fold().to(kind)
    sizes = shared.sizes
    if sizes is None:
        sizes = torch.full((shared.clients,), len(maps), dtype=torch.int32, device=maps.device)
    return depthwise(maps, weight.reshape(-1, 9), conv.stride[0], sizes, inputs.norm)


def batch_norm(norm: nn.BatchNorm2d, tensors: Mapping[str, Tensor], maps: Tensor, shared: Shared) -> Activation | None:
    """Batch normalisation of folded maps by kernels; None where torch's is the better choice.

    With batch statistics it is masked and moves the running statistics; with running statistics it has no gradient.
    Where the next layer normalises while it reads, the activation says how and the maps stay unchanged.
    """
    from fedblade.engines.layers._norm_functions import MaskedNorm, Shape, applied, known_facts

    tracks = "running_mean" in tensors
    by_batch = shared.training or not tracks
    if shared.sizes is None if by_batch else torch.is_grad_enabled():
        return None
    maps = maps.contiguous(memory_format=torch.channels_last)
    weight = tensors["weight"].flatten() if "weight" in tensors else maps.new_ones(maps.shape[1], dtype=torch.float32)
    bias = tensors["bias"].flatten() if "bias" in tensors else maps.new_zeros(maps.shape[1], dtype=torch.float32)
    if not by_batch:
        mean, var = tensors["running_mean"].flatten(), tensors["running_var"].flatten()
        facts = known_facts(mean, var, weight, bias, norm.eps)
        if shared.defer:
            return Activation(maps, folded=True, norm=Norm(weight, bias, None, norm.eps, shared.relu, facts))
        return Activation(applied(maps, facts, Shape.of(maps, shared.clients), relu=shared.relu), folded=True)
    running = None
    if shared.training and tracks:
        mean, var = tensors["running_mean"].flatten(), tensors["running_var"].flatten()
        running = Running(mean, var, tensors["num_batches_tracked"], float(norm.momentum or 0.0))
    if shared.defer:
        return Activation(maps, folded=True, norm=Norm(weight, bias, running, norm.eps, shared.relu))
    outputs: Tensor = MaskedNorm.apply(maps, weight, bias, shared.sizes, running, norm.eps, shared.relu)  # type: ignore[no-untyped-call]
    return Activation(outputs, folded=True)
