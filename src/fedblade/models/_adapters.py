"""Wrappers that make a user's module return features: its output, its method `features`, or timm's two methods."""

from collections import OrderedDict
from dataclasses import dataclass

from torch import Tensor, nn

from fedblade.core.neck import Wrapper, stages_of


@dataclass(frozen=True)
class CutLayer:
    """Where the last layer of a module was before it was cut off, and whether it had a bias."""

    path: str
    has_bias: bool


class Adapter(Wrapper):
    """A user's module, made to return features; `given` is the module before its last layer was cut off.

    `cut` says where that layer was, None if no layer was cut off.
    """

    def __init__(self, module: nn.Module, given: nn.Module, cut: CutLayer | None = None) -> None:
        super().__init__(given)
        self.module = module
        self.cut = cut
        self.stages = tuple(f"module.{name}" for name in stages_of(module))

    def forward(self, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of inputs [batch, …]."""
        features: Tensor = self.module(inputs)
        return features


class FeatureMethod(Adapter):
    """Calls the method `features` of a module whose `forward` also applies a classifier."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of inputs [batch, …]."""
        features: Tensor = self.module.features(inputs)  # type: ignore[operator]  # checked by `as_backbone`
        return features


class PreLogits(Adapter):
    """Calls `forward_features` and `forward_head` of a timm model and stops before its classifier."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of inputs [batch, …]."""
        maps = self.module.forward_features(inputs)  # type: ignore[operator]  # checked by `as_backbone`
        features: Tensor = self.module.forward_head(maps, pre_logits=True)  # type: ignore[operator]
        return features


def with_head(body: nn.Module, head: nn.Module) -> nn.Module:
    """A body and a head as one module. The head takes the place of the last layer that was cut off, if there was one.

    Otherwise the module has the parts `body` and `head`.
    """
    if not isinstance(body, Adapter) or body.cut is None:
        return nn.Sequential(OrderedDict(body=body, head=head))
    if body.cut.has_bias and isinstance(head, nn.Linear) and head.bias is None:
        # So that a module of the user's class can load all tensors.
        head.bias = nn.Parameter(head.weight.new_zeros(head.out_features), head.weight.requires_grad)
    if not body.cut.path:
        return head
    parent, _, name = body.cut.path.rpartition(".")
    body.module.get_submodule(parent).register_module(name, head)
    return body.module
