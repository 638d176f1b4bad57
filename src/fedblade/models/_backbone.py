"""What a backbone promises, and how a user's module becomes one."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from fedblade.core.errors import Misconfigured


class Backbone(nn.Module, ABC):
    """A feature extractor with a known width.

    `stages` names the submodules, from input to output, that methods which look inside may tap.
    """

    dim: int
    stages: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def features(self, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of inputs [batch, …]."""

    def forward(self, inputs: Tensor) -> Tensor:
        """The features, so that a backbone can be called like any module."""
        return self.features(inputs)


class _FeatureMethod(nn.Module):
    """Calls `features` of a wrapped module whose `forward` would go on to a classifier."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.module.features(inputs)  # type: ignore[operator]  # checked by `as_backbone`
        return features


def as_backbone(module: object) -> nn.Module:
    """A user's module as a backbone: one with a `features(x)` method and `dim`, or one whose output is the features."""
    if not isinstance(module, nn.Module):
        raise Misconfigured(
            f"model is a {type(module).__name__}; expected a torch.nn.Module that returns features [batch, dim], "
            f"or the name of a registered model."
        )
    features = getattr(module, "features", None)
    if isinstance(module, Backbone) or isinstance(features, nn.Module) or not callable(features):
        return module
    return _FeatureMethod(module)
