"""Wrappers that make a user's module return features: its output, its method `features`, or timm's two methods."""

from torch import Tensor, nn

from fedblade.core.neck import Wrapper, stages_of


class Adapter(Wrapper):
    """A user's module, made to return features; `given` is the module before its last layer was cut off."""

    def __init__(self, module: nn.Module, given: nn.Module) -> None:
        super().__init__(given)
        self.module = module
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
