"""Layers that treat every number alike, in any layout."""

from collections.abc import Mapping

from torch import Tensor, nn

from fedblade.engines.layers._base import Activation, Shared, rule


@rule(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Sigmoid, nn.Tanh, nn.Softplus,
      nn.Identity)  # fmt: skip
def elementwise(module: nn.Module, _tensors: Mapping[str, Tensor], inputs: Activation, _shared: Shared) -> Activation:
    """The module itself."""
    return Activation(module(inputs.value), inputs.folded)
