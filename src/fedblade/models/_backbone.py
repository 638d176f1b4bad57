"""The interface of a backbone, and how a user's module becomes a backbone."""

import copy
import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedblade.core.errors import Misconfigured
from fedblade.models._adapters import Adapter, CutLayer, FeatureMethod, PreLogits
from fedblade.models._last_layer import Call, Trace, shares_with, trace_forward, without_last

Output = Literal["auto", "features", "logits"]
"""The setting `model.output`: what a user's module returns."""

USER_MODULE_REVISION = 1
"""The revision of the treatment of a user's module, raised by one with every change of results.

1: the last layer is found by running the module, the head starts from its weights, and frozen layers do not change.
"""


class Backbone(nn.Module, ABC):
    """A feature extractor with a known width.

    `stages` names submodules from input to output; methods may use their outputs. A stage returns [batch, channels, …]
    and ends before its activation, so that a method sees the values that the activation would cut off and can still
    apply the activation.
    """

    dim: int
    stages: tuple[str, ...] = ()

    @abstractmethod
    def features(self, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of inputs [batch, …]."""

    def forward(self, inputs: Tensor) -> Tensor:
        """The features: a backbone can be called like any module."""
        return self.features(inputs)


@dataclass(frozen=True)
class Adapted:
    """A module that returns features [batch, dim], and the classifier that was cut off, if there was one.

    `found` says where the features come from, `cut` describes the classifier, and `hint` says what to set if the
    decision is wrong; all three are parts of one line for the user. `cut_names` are the names of the classifier's
    parameters in the module.
    """

    body: nn.Module
    found: str
    hint: str = ""
    classifier: nn.Linear | None = None
    cut: str = ""
    cut_names: tuple[str, ...] = ()


def user_module(given: object) -> nn.Module:
    """Check that the model which a user passed is a module with initialised tensors."""
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

    1. `output` "features": the output is the features. "logits": the last linear layer is cut off, on a copy, and the
       features are the input of that layer.
    2. A `Backbone` is used as it is.
    3. A module with a method `features(x)`: its result is the features. (The module may declare `stages`.)
    4. A module with timm's `forward_features(x)`, `forward_head(x, pre_logits=…)`, `num_features` and
       `reset_classifier(0)`: the features before the classifier, which is removed from a copy.
    5. An integer `dim` that is the width of the output: the output is the features.
    6. The output is the output of an `nn.Linear`, directly or after a softmax, and the layer has one output per class
       or the module is from torchvision: the layer is cut off. The names of layers do not matter.
    7. Any other module is used as it is: its output is the features.

    If the head of the method has the form of the layer that was cut off, the head starts from the layer's weights.

    Parameters with `requires_grad=False` do not change, have no gradient and do not travel. A BatchNorm whose
    parameters are all frozen also keeps its statistics and normalises with them in training, whether the module is in
    training mode or not. A BatchNorm with a trained parameter updates its statistics.
    """  # noqa: D400 - the first line introduces the rules
    module = user_module(given)
    known = _by_declaration(module, example, num_classes) if output == "auto" else None
    if known is not None:
        return known
    if isinstance(module, Backbone) and output == "logits":
        raise Misconfigured(
            f"model.output = 'logits', but model {type(module).__name__} is a Backbone, which returns features. "
            f"Use model.output=auto."
        )
    return _by_running(module, example, num_classes, output)


def _by_running(module: nn.Module, example: Tensor, num_classes: int, output: Output) -> Adapted:
    """Apply the rules for `output` and the rules from 5 on, which need a forward pass."""
    try:
        trace = trace_forward(module, example)
    except Exception as error:
        if output == "logits":
            reason = str(error).partition("\n")[0]
            raise Misconfigured(
                f"model {type(module).__name__} cannot be run to find its last layer: {reason}. Correct the module, or "
                f"give it a method features(x) and leave model.output out."
            ) from error
        # The network runs the module later and reports the error.
        return Adapted(module, "features as the module returns them")
    if output == "logits":
        return _without_last_linear(module, trace, example)
    unchanged = Adapted(module, f"{trace.width} features after {trace.before}, as the module returns them")
    if output == "features" or trace.width is None or getattr(module, "dim", None) == trace.width:
        return replace(unchanged, found=f"{trace.width} features, as the module returns them")
    if trace.linear is not None and (trace.width == num_classes or _is_torchvision(module)):
        return replace(
            _without_last_linear(module, trace, example),
            hint="If the module returns features, set model.output=features.",
        )
    if trace.linear is not None:
        found = f"{trace.width} features, the output of {trace.linear.place}"
        return Adapted(module, found, "If the layer is a classifier, set model.output=logits.")
    if trace.width == num_classes:
        hint = "There are as many classes: if these are logits, give the module a method features(x)."
        return replace(unchanged, hint=hint)
    return unchanged


def _by_declaration(module: nn.Module, example: Tensor, num_classes: int) -> Adapted | None:
    """The rules 2 to 4: modules that declare their features."""
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
    """A module with a method `features`; a last layer that turns these features into logits is cut off."""
    found = "features by its method features(x)"
    try:
        trace = trace_forward(module, example)
        cut = without_last(module, trace, example) if trace.width == num_classes else None
        if cut is not None and trace.linear is not None:
            body = FeatureMethod(cut, module, _cut_layer(trace.linear))
            output, features = (trace_forward(part, example).output for part in (cut, body))
            if isinstance(output, Tensor) and isinstance(features, Tensor) and torch.equal(output, features):
                return _described(body, found, trace.linear)
    except Exception:  # noqa: S110 - `forward` of the module may fail, only `features` is used
        pass
    return Adapted(FeatureMethod(module, module), found)


def _without_last_linear(module: nn.Module, trace: Trace, example: Tensor) -> Adapted:
    """A module without its last linear layer."""
    name = type(module).__name__
    if getattr(module, "aux_logits", False):
        raise Misconfigured(
            f"model {name} has auxiliary classifiers, which return more than features in training. "
            f"Create the model with aux_logits=False."
        )
    body = without_last(module, trace, example)
    if body is None or trace.linear is None:
        raise Misconfigured(
            f"model {name} returns logits, but its last layer cannot be cut off: {_why_not(module, trace)}. Give "
            f"the module a method features(x), or set model.output=features to use its output as features."
        )
    return _described(
        Adapter(body, module, _cut_layer(trace.linear)),
        f"{trace.linear.layer.in_features} features after {trace.before}",
        trace.linear,
    )


def _described(body: nn.Module, found: str, linear: Call) -> Adapted:
    """The result for a body whose last layer was cut off."""
    classifier = linear.layer
    assert isinstance(classifier, nn.Linear)  # noqa: S101 - `trace_forward` gives linear layers only
    cut = f"{linear.place} ({classifier.in_features} → {classifier.out_features})"
    names = tuple(f"{linear.path}.{name}" for name, _ in classifier.named_parameters())
    return Adapted(body, found, classifier=classifier, cut=cut, cut_names=names)


def _cut_layer(linear: Call) -> CutLayer:
    return CutLayer(linear.path, linear.layer.bias is not None)


def _why_not(module: nn.Module, trace: Trace) -> str:
    if trace.linear is None:
        return "the output is not the output of an nn.Linear"
    if trace.inside:
        return f"its forward applies a softmax to the output of '{trace.linear.path}'"
    sharing = shares_with(module, trace.linear.path)
    if sharing is not None:
        return f"'{trace.linear.path}' shares a parameter with '{sharing}', which a head cannot"
    return f"its forward also uses the output of '{trace.linear.path}' in another way"


def _is_torchvision(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torchvision.models.")


def _has_method(module: nn.Module, name: str) -> bool:
    """Whether `name` is a method; in torchvision's VGG and timm's DenseNet, `features` is a submodule."""
    attribute = getattr(module, name, None)
    return callable(attribute) and not isinstance(attribute, nn.Module)


def _is_timm(module: nn.Module) -> bool:
    return (
        all(_has_method(module, name) for name in ("forward_features", "forward_head", "reset_classifier"))
        and isinstance(getattr(module, "num_features", None), int)
        and "pre_logits" in inspect.signature(module.forward_head).parameters  # type: ignore[arg-type]
    )
