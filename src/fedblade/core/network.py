"""A body (any module that maps inputs to features) and a method's head, called with explicit tensors."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedblade.core.tree import Tree, tree_select
from fedblade.core.views import Head, HeadOutput, StepView, Tap, TeacherOutput

NORM_LAYERS = (_BatchNorm, nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
BODY = "body."
"""How the names of the body's tensors start."""


@dataclass(frozen=True)
class Network:
    """Body and head. The module is only a template for `functional_call`; every tensor is passed in.

    `skips_singletons` says that the body cannot train on one sample (batch statistics of one value).
    `autocast` is the reduced type of the body's forward pass, or None; `tied` says that layers share tensors.
    `stages` names the submodules of the body whose outputs can be tapped. `frozen` names the parameters of the body
    that are never trained: they are fixed tensors, and `complete` adds them to the parameters.
    """

    body: nn.Module
    head: Head
    dim: int
    num_classes: int
    skips_singletons: bool = False
    autocast: torch.dtype | None = None
    tied: bool = False
    stages: tuple[str, ...] = ()
    frozen: frozenset[str] = frozenset()

    def complete(self, params: Tree, fixed: Tree) -> Tree:
        """All parameters of the body: `params` and the frozen ones, which are among the fixed tensors."""
        return {name: fixed[name] for name in self.frozen} | params if self.frozen else params

    def body_tensors(self, params: Tree, fixed: Tree, buffers: Tree) -> Tree:
        """All tensors that features depend on: the parameters of the body and its statistics."""
        return {name: leaf for name, leaf in self.complete(params, fixed).items() if name.startswith(BODY)} | buffers

    def features(self, params: Tree, buffers: Tree, inputs: Tensor, *, training: bool) -> Tensor:
        """Features [batch, dim] with `complete` parameters. Training updates statistics in `buffers` in place."""
        return self._forward(params, buffers, inputs, training=training)

    def tapped(
        self, params: Tree, buffers: Tree, inputs: Tensor, *, training: bool, tap: Tap
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Features, and the outputs of the stages, averaged over positions [batch, channels], if they are tapped."""
        if tap == "none":
            return self._forward(params, buffers, inputs, training=training), ()
        outputs: list[Tensor] = []

        def keep(_module: nn.Module, _args: object, output: Tensor) -> None:
            outputs.append(_over_positions(output.relu() if tap == "relu" else output).to(inputs.dtype))

        hooks = [self.body.get_submodule(name).register_forward_hook(keep) for name in self.stages]
        try:
            return self._forward(params, buffers, inputs, training=training), tuple(outputs)
        finally:
            for hook in hooks:
                hook.remove()

    def _forward(self, params: Tree, buffers: Tree, inputs: Tensor, *, training: bool) -> Tensor:
        if not self.frozen <= params.keys():
            raise KeyError(f"frozen parameters are missing, such as '{min(self.frozen - params.keys())}'")
        tensors = {name.removeprefix(BODY): leaf for name, leaf in params.items() if name.startswith(BODY)}
        tensors |= {name.removeprefix(BODY): leaf for name, leaf in buffers.items()}
        if self.body.training != training:
            self.body.train(training)
        reduced = self.autocast is not None
        with torch.autocast(inputs.device.type, dtype=self.autocast) if reduced else nullcontext():
            features: Tensor = torch.func.functional_call(self.body, tensors, (inputs,), tie_weights=self.tied)
        return features.to(inputs.dtype)

    def output(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:
        """The head's output for features."""
        return self.head(params, fixed, features)

    def view(self, params: Tree, fixed: Tree, features: Tensor, **seen: Any) -> StepView:
        """What terms and passes see of one client and one batch; `seen` are the other fields of the view."""
        fixed = with_freed(fixed, params)
        output = self.output(params, fixed, features)
        return StepView(params=params, fixed=fixed, head=self.head, features=features, output=output, **seen)

    def teacher_output(self, params: Tree, fixed: Tree, features: Tensor) -> TeacherOutput:
        """What a model with these parameters gives for a batch with these features."""
        fixed = with_freed(fixed, params)
        output = self.output(params, fixed, features)
        return TeacherOutput(features, output, self.head.raw_logits(params, fixed, output))

    @cached_property
    def takes_batch_statistics(self) -> bool:
        """Whether normalisation uses the batch in a pass too, so that features depend on the rest of the batch."""
        return any(isinstance(layer, _BatchNorm) and layer.running_mean is None for layer in self.body.modules())

    @property
    def buffer_names(self) -> frozenset[str]:
        """Names of the statistics of the body's normalisation layers; other buffers are constants."""
        return norm_names(self.body) & {f"{BODY}{name}" for name, _ in self.body.named_buffers()}

    def names_in(self, groups: tuple[str, ...], names: Iterable[str]) -> frozenset[str]:
        """Names of the tensors that belong to any of `groups`; necks and normalisation layers are parts of `body`."""
        norm = norm_names(self.body) if "norm" in groups else frozenset()
        prefixes = {*groups, "neck"} if "body" in groups else set(groups)
        return frozenset(name for name in names if name.partition(".")[0] in prefixes or name in norm)


def with_freed(fixed: Tree, params: Tree) -> Tree:
    """The fixed tensors; those that a phase freed have the client's present values."""
    return fixed | tree_select(params, fixed)


def _over_positions(activations: Tensor) -> Tensor:
    """Mean over all axes behind the channels: [batch, channels, …] to [batch, channels]."""
    return activations.flatten(2).mean(2) if activations.dim() > 2 else activations


def norm_names(body: nn.Module) -> frozenset[str]:
    """Names of parameters and buffers inside normalisation layers."""
    return frozenset(
        f"{BODY}{prefix}.{name}" if prefix else f"{BODY}{name}"
        for prefix, module in body.named_modules()
        if isinstance(module, NORM_LAYERS)
        for name, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    )
