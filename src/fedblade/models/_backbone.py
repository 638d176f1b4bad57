"""What a backbone promises, and how a user's module becomes one."""

import copy
import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedblade.core.errors import Misconfigured
from fedblade.models._adapters import Adapter, FeatureMethod, PreLogits
from fedblade.models._last_layer import Call, Seen, look, shares_with, without_last

Output = Literal["auto", "features", "logits"]
"""What a user says of a module's output."""

OWN_MODEL_REVISION = 1
"""Rises by one with every change of what is done with a user's own module that changes results, as a part's revision
does. 1: the last layer is found by running the module, its weights start the head, and frozen layers stay as they are.
"""


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


@dataclass(frozen=True)
class Adapted:
    """A module that returns features [batch, dim], what was found, and the classifier that was cut off, if one was.

    `found` says where the features come from, `cut` describes the classifier, and `hint` says what to set if the
    decision is wrong; all three are parts of one line for the user. `cut_names` are the classifier's parameters by
    their names in the module.
    """

    body: nn.Module
    found: str
    hint: str = ""
    classifier: nn.Linear | None = None
    cut: str = ""
    cut_names: tuple[str, ...] = ()


def own_module(given: object) -> nn.Module:
    """What a user passed as a model, if it is one."""
    if not isinstance(given, nn.Module):
        raise Misconfigured(
            f"model is a {type(given).__name__}; expected a torch.nn.Module that returns features [batch, dim] or "
            f"logits [batch, classes], or the name of a registered model."
        )
    empty = [name for name, leaf in (*given.named_parameters(), *given.named_buffers()) if is_lazy(leaf)]
    if empty:
        raise Misconfigured(
            f"model {type(given).__name__} has tensors without a shape, such as '{empty[0]}' (a lazy layer). Run the "
            f"module once on an input before you pass it."
        )
    return given


def as_backbone(given: object, example: Tensor, num_classes: int, output: Output = "auto") -> Adapted:
    """A user's module as one that returns features; `example [1, …]` is an input. The first rule that fits decides:

    1. `output` "features": the output is the features. "logits": the last linear layer is cut off, on a copy, so that
       the features are what the layer would have been given.
    2. A `Backbone` is used as it is.
    3. A method `features(x)`: its result is the features. (Declare `stages` beside it, as a backbone does.)
    4. timm's `forward_features(x)`, `forward_head(x, pre_logits=…)`, `num_features` and `reset_classifier(0)`: the
       features before the classifier, which is removed from a copy.
    5. An integer `dim` that is the width of the output: the output is the features.
    6. The output is what an `nn.Linear` returned, as it is or after a softmax, and the layer has an output for each
       class or the module is one of torchvision's: the layer is cut off. The names of layers play no part.
    7. Anything else is used as it is: its output is the features.

    Where a method's head has the form of the layer that was cut off, the head starts from the layer's weights.

    Parameters with `requires_grad=False` stay as they are, are not differentiated and do not travel. A BatchNorm whose
    parameters are all frozen keeps its statistics too and normalises with them in training, whether the module is in
    training mode or not. A BatchNorm with a trained parameter goes on to gather statistics.
    """  # noqa: D400 - the first line leads into the rules
    module = own_module(given)
    if output == "auto":
        known = _known(module, example, num_classes)
        if known is not None:
            return known
    elif isinstance(module, Backbone) and output == "logits":
        raise Misconfigured(
            f"model.output = 'logits', but model {type(module).__name__} is a Backbone, which returns features. "
            f"Use model.output=auto."
        )
    try:
        seen = look(module, example)
    except Exception as error:
        if output == "logits":
            reason = str(error).partition("\n")[0]
            raise Misconfigured(
                f"model {type(module).__name__} cannot be run to find its last layer: {reason}. Mend the module, or "
                f"give it a method features(x) and leave model.output out."
            ) from error
        # The network runs the module again and says what is wrong with it.
        return Adapted(module, "features as the module returns them")
    if output == "logits":
        return _cut(module, seen, example)
    as_it_is = Adapted(module, f"{seen.width} features after {seen.before}, as the module returns them")
    if output == "features" or seen.width is None or getattr(module, "dim", None) == seen.width:
        return replace(as_it_is, found=f"{seen.width} features, as the module returns them")
    if seen.linear is not None and (seen.width == num_classes or _is_torchvision(module)):
        return replace(_cut(module, seen, example), hint="If the module returns features, set model.output=features.")
    if seen.linear is not None:
        found = f"{seen.width} features, the output of {seen.linear.place}"
        return Adapted(module, found, "If the layer is a classifier, set model.output=logits.")
    if seen.width == num_classes:
        hint = "There are as many classes: if these are logits, give the module a method features(x)."
        return replace(as_it_is, hint=hint)
    return as_it_is


def _known(module: nn.Module, example: Tensor, num_classes: int) -> Adapted | None:
    """Modules that say themselves what their features are."""
    if isinstance(module, Backbone):
        return Adapted(module, "features as its class Backbone says")
    if _has_method(module, "features"):
        return _by_method(module, example, num_classes)
    if _is_timm(module):
        headless = copy.deepcopy(module)
        headless.reset_classifier(0)  # type: ignore[operator]  # checked by `_is_timm`
        return Adapted(
            PreLogits(headless, module), f"{module.num_features} features before the classifier, found as timm's"
        )
    return None


def _by_method(module: nn.Module, example: Tensor, num_classes: int) -> Adapted:
    """A module with a method `features`; a last layer that makes logits of just these features is cut off."""
    found = "features by its method features(x)"
    try:
        seen = look(module, example)
        cut = without_last(module, seen, example) if seen.width == num_classes else None
        if cut is not None and seen.linear is not None:
            body = FeatureMethod(cut, module)
            output, features = (look(each, example).output for each in (cut, body))
            if isinstance(output, Tensor) and isinstance(features, Tensor) and torch.equal(output, features):
                return _described(body, found, seen.linear)
    except Exception:  # noqa: S110 - only its `features` has to work
        pass
    return Adapted(FeatureMethod(module, module), found)


def _cut(module: nn.Module, seen: Seen, example: Tensor) -> Adapted:
    """A module without its last linear layer."""
    name = type(module).__name__
    if getattr(module, "aux_logits", False):
        raise Misconfigured(
            f"model {name} has auxiliary classifiers, which return more than features in training. "
            f"Make it with aux_logits=False."
        )
    body = without_last(module, seen, example)
    if body is None or seen.linear is None:
        raise Misconfigured(
            f"model {name} returns logits, but its last layer cannot be cut off: {_why_not(module, seen)}. Give "
            f"the module a method features(x), or set model.output=features to use its output as features."
        )
    return _described(
        Adapter(body, module), f"{seen.linear.layer.in_features} features after {seen.before}", seen.linear
    )


def _described(body: nn.Module, found: str, linear: Call) -> Adapted:
    """A body whose last layer was cut off."""
    classifier = linear.layer
    assert isinstance(classifier, nn.Linear)  # noqa: S101 - by `look`
    cut = f"{linear.place} ({classifier.in_features} → {classifier.out_features})"
    names = tuple(f"{linear.path}.{name}" for name, _ in classifier.named_parameters())
    return Adapted(body, found, classifier=classifier, cut=cut, cut_names=names)


def _why_not(module: nn.Module, seen: Seen) -> str:
    if seen.linear is None:
        return "the output is not what an nn.Linear returned"
    if seen.inside:
        return f"its forward applies a softmax to the output of '{seen.linear.path}'"
    sharing = shares_with(module, seen.linear.path)
    if sharing is not None:
        return f"'{seen.linear.path}' shares a parameter with '{sharing}', and the head would not"
    return f"its forward uses the output of '{seen.linear.path}' in another way too"


def _is_torchvision(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torchvision.models.")


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
