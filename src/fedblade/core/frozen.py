"""Frozen layers of a body: parameters with `requires_grad=False`, and the statistics of frozen normalisation layers."""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _NormBase


class FrozenNorm(nn.Module):
    """A normalisation layer with stored statistics μ, σ²: γ·(x − μ)/sqrt(σ² + ε) + β, in training too.

    Its tensors are parameters without a gradient, like all frozen parameters. They keep their names, so that a file of
    the original layer's tensors can be loaded.
    """

    running_mean: Tensor
    running_var: Tensor
    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, layer: _NormBase) -> None:
        super().__init__()
        self.eps = layer.eps
        self._replaced = (copy.deepcopy(layer),)  # in a tuple, so that it is no part of this module
        for name, leaf in (*layer.named_parameters(), *layer.named_buffers()):
            self.register_parameter(name, nn.Parameter(leaf.detach().clone(), requires_grad=False))
        for name in ("weight", "bias"):
            if getattr(layer, name) is None:
                self.register_parameter(name, None)

    def plain_layer(self) -> _NormBase:
        """The layer that this one replaced, with this one's tensors."""
        layer = copy.deepcopy(self._replaced[0]).to(self.running_mean)
        layer.load_state_dict(self.state_dict())
        return layer

    def reset_parameters(self) -> None:
        """Does nothing: frozen tensors are not drawn anew when a module resets its layers."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalised inputs [batch, channels, …]."""
        return functional.batch_norm(
            inputs, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
        )


def freeze_norms(body: nn.Module) -> nn.Module:
    """The body with every frozen normalisation layer that has statistics replaced by a `FrozenNorm`, in place.

    A layer is frozen if all of its parameters are. A layer without parameters is frozen if the module that holds it has
    parameters and all of them are frozen.
    """
    if isinstance(body, _NormBase):
        return FrozenNorm(body) if _has_statistics(body) and _is_frozen(body) else body
    frozen: dict[_NormBase, FrozenNorm] = {}
    for parent, name, layer in list(_norms(body)):
        if _is_frozen(layer if any(True for _ in layer.parameters()) else parent):
            frozen.setdefault(layer, FrozenNorm(layer))
            parent.register_module(name, frozen[layer])
    return body


def without_frozen_norms(body: nn.Module) -> nn.Module:
    """The body with every `FrozenNorm` replaced by the layer that it stands for, in place."""
    if isinstance(body, FrozenNorm):
        return body.plain_layer()
    plain: dict[FrozenNorm, _NormBase] = {}
    for parent in list(body.modules()):
        for name, layer in list(parent._modules.items()):
            if isinstance(layer, FrozenNorm):
                plain.setdefault(layer, layer.plain_layer())
                parent.register_module(name, plain[layer])
    return body


def frozen_parameters(body: nn.Module) -> dict[str, Tensor]:
    """The parameters that are never trained, by name; tied parameters have the name of the first."""
    return {name: leaf for name, leaf in body.named_parameters() if not leaf.requires_grad}


def _norms(body: nn.Module) -> Iterator[tuple[nn.Module, str, _NormBase]]:
    """Normalisation layers with statistics: the parent module, the layer's name there, and the layer."""
    for parent in body.modules():
        for name, layer in parent._modules.items():
            if isinstance(layer, _NormBase) and _has_statistics(layer):
                yield parent, name, layer


def _has_statistics(layer: _NormBase) -> bool:
    return isinstance(layer.running_mean, torch.Tensor) and isinstance(layer.running_var, torch.Tensor)


def _is_frozen(module: nn.Module) -> bool:
    """Whether a module has parameters and none of them is trained."""
    flags = [leaf.requires_grad for leaf in module.parameters()]
    return bool(flags) and not any(flags)
