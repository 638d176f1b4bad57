"""What a backbone promises, and how a user's module becomes one."""

import copy
import inspect
from abc import ABC, abstractmethod

from torch import Tensor, nn

from fedblade.core.errors import Misconfigured

CLASSIFIERS = ("fc", "classifier", "head", "heads")
"""Attributes under which torchvision's models keep the layers that end in the classifier."""


class Backbone(nn.Module, ABC):
    """A feature extractor with a known width.

    `stages` names the submodules, from input to output, that methods which look inside may tap. Each returns
    [batch, channels, …], and ends before its activation where the architecture has one there: a tap sees what the
    activation would cut off, and can still apply it.
    """

    dim: int
    stages: tuple[str, ...] = ()

    @abstractmethod
    def features(self, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of inputs [batch, …]."""

    def forward(self, inputs: Tensor) -> Tensor:
        """The features, so that a backbone can be called like any module."""
        return self.features(inputs)


class _Adapter(nn.Module):
    """A user's module, made to return features. Known to `as_backbone`, which leaves it alone."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        stages = getattr(module, "stages", ())
        named = isinstance(stages, tuple | list) and all(isinstance(name, str) for name in stages)
        self.stages = tuple(f"module.{name}" for name in stages) if named else ()

    def forward(self, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of inputs [batch, …]."""
        features: Tensor = self.module(inputs)
        return features


class _FeatureMethod(_Adapter):
    """Calls `features` of a module whose `forward` would go on to a classifier."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of inputs [batch, …]."""
        features: Tensor = self.module.features(inputs)  # type: ignore[operator]  # checked by `as_backbone`
        return features


class _PreLogits(_Adapter):
    """Calls the two halves of a timm model and stops before its classifier."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of inputs [batch, …]."""
        maps = self.module.forward_features(inputs)  # type: ignore[operator]  # checked by `as_backbone`
        features: Tensor = self.module.forward_head(maps, pre_logits=True)  # type: ignore[operator]
        return features


def as_backbone(module: object) -> nn.Module:
    """A user's module as one that returns features [batch, dim]. The first rule that fits decides:

    1. A `Backbone` is used as it is.
    2. A method `features(x)`: its result is the features. (Declare `dim` and `stages` beside it, as a backbone does.)
    3. timm's `forward_features(x)`, `forward_head(x, pre_logits=…)`, `num_features` and `reset_classifier(0)`: the
       features before the classifier, which is removed from a copy.
    4. An integer `dim`: the output already is the features, whatever the layers are called.
    5. torchvision's classifiers: the module's last linear layer is the attribute `fc`, `classifier`, `head` or
       `heads`, or lies directly in the `nn.Sequential` of that name. On a copy, it becomes the identity and what
       follows it in the sequence is dropped, so that the output is what the classifier would have been given.
    6. Anything else is used as it is: its output is taken for the features.
    """  # noqa: D400 - the first line leads into the rules
    if not isinstance(module, nn.Module):
        raise Misconfigured(
            f"model is a {type(module).__name__}; expected a torch.nn.Module that returns features [batch, dim], "
            f"or the name of a registered model."
        )
    if isinstance(module, Backbone | _Adapter):
        return module
    if _has_method(module, "features"):
        return _FeatureMethod(module)
    if _is_timm(module):
        headless = copy.deepcopy(module)
        headless.reset_classifier(0)  # type: ignore[operator]  # checked by `_is_timm`
        return _PreLogits(headless)
    if isinstance(getattr(module, "dim", None), int):
        return module
    path = _classifier_path(module)
    return module if path is None else _Adapter(_without_classifier(module, path))


def _has_method(module: nn.Module, name: str) -> bool:
    """Whether `name` is a method; torchvision's VGG and timm's DenseNet keep a submodule under `features`."""
    found = getattr(module, name, None)
    return callable(found) and not isinstance(found, nn.Module)


def _is_timm(module: nn.Module) -> bool:
    return (
        all(_has_method(module, name) for name in ("forward_features", "forward_head", "reset_classifier"))
        and isinstance(getattr(module, "num_features", None), int)
        and "pre_logits" in inspect.signature(module.forward_head).parameters  # type: ignore[arg-type]
    )


def _classifier_path(module: nn.Module) -> str | None:
    """Where the last linear layer is, if that is where a classifier is expected."""
    linear = [path for path, part in module.named_modules() if isinstance(part, nn.Linear)]
    if not linear:
        return None
    attribute, _, inside = linear[-1].partition(".")
    if attribute not in CLASSIFIERS or "." in inside:
        return None
    return linear[-1] if not inside or isinstance(getattr(module, attribute), nn.Sequential) else None


def _without_classifier(module: nn.Module, path: str) -> nn.Module:
    if getattr(module, "aux_logits", False):
        raise Misconfigured(
            f"model {type(module).__name__} has auxiliary classifiers, which return more than features in training. "
            f"Make it with aux_logits=False."
        )
    headless = copy.deepcopy(module)
    attribute, _, inside = path.partition(".")
    if not inside:
        setattr(headless, attribute, nn.Identity())
        return headless
    layers = getattr(headless, attribute)
    names = [name for name, _ in layers.named_children()]
    setattr(layers, inside, nn.Identity())
    for name in names[names.index(inside) + 1 :]:
        delattr(layers, name)
    return headless
