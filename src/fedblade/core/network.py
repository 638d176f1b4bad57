"""A body (any module that maps inputs to features) composed with a method's head, called with explicit tensors."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedblade.core.errors import Misconfigured
from fedblade.core.frozen import freeze_norms, frozen_parameters
from fedblade.core.neck import Neck, WithNeck, class_name, stages_of
from fedblade.core.streams import Streams
from fedblade.core.tree import Tree
from fedblade.core.views import Head, HeadOutput, Tap

NORM_LAYERS = (_BatchNorm, nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
HEAD_GROUPS = ("neck", "projector", "head", "scale", "personal_head")
_BODY = "body."


@dataclass(frozen=True)
class Network:
    """Extractor and head. The module is only a template for `functional_call`; every tensor is passed in.

    `skips_singletons` says that the body cannot train on one sample (batch statistics of one value).
    `autocast` is the reduced type of the body's forward pass, or None; `tied` says that layers share tensors.
    `stages` names the submodules of the body whose outputs can be tapped. `frozen` names the parameters of the body
    that are never trained: they are fixed tensors, and `complete` puts them beside the others.
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
        """`params` and the frozen parameters of the body, which are among the fixed tensors: what the body needs."""
        return {name: fixed[name] for name in self.frozen} | params if self.frozen else params

    def features(self, params: Tree, buffers: Tree, inputs: Tensor, *, training: bool) -> Tensor:
        """Features [batch, dim] with `complete` parameters. Training updates statistics in `buffers` in place."""
        return self._forward(params, buffers, inputs, training=training)

    def eval_features(self, params: Tree, buffers: Tree, inputs: Tensor) -> Tensor:
        """Features [batch, dim] in evaluation mode."""
        return self._forward(params, buffers, inputs, training=False)

    def tapped(
        self, params: Tree, buffers: Tree, inputs: Tensor, *, training: bool, tap: Tap
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Features, and the output of each stage averaged over positions [batch, channels] if they are tapped."""
        if tap == "none":
            return self._forward(params, buffers, inputs, training=training), ()
        seen: list[Tensor] = []

        def keep(_module: nn.Module, _args: object, output: Tensor) -> None:
            seen.append(_over_positions(output.relu() if tap == "relu" else output).to(inputs.dtype))

        hooks = [self.body.get_submodule(name).register_forward_hook(keep) for name in self.stages]
        try:
            return self._forward(params, buffers, inputs, training=training), tuple(seen)
        finally:
            for hook in hooks:
                hook.remove()

    def _forward(self, params: Tree, buffers: Tree, inputs: Tensor, *, training: bool) -> Tensor:
        if not self.frozen <= params.keys():
            raise KeyError(f"frozen parameters are missing, such as '{min(self.frozen - params.keys())}'")
        tensors = {name.removeprefix(_BODY): leaf for name, leaf in params.items() if name.startswith(_BODY)}
        tensors |= {name.removeprefix(_BODY): leaf for name, leaf in buffers.items()}
        if self.body.training != training:
            self.body.train(training)
        reduced = self.autocast is not None
        with torch.autocast(inputs.device.type, dtype=self.autocast) if reduced else nullcontext():
            features: Tensor = torch.func.functional_call(self.body, tensors, (inputs,), tie_weights=self.tied)
        return features.to(inputs.dtype)

    def output(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:
        """The head's output for features."""
        return self.head(params, fixed, features)

    @property
    def buffer_names(self) -> frozenset[str]:
        """Names of the statistics of the body's normalisation layers; other buffers are constants."""
        return norm_names(self.body) & {f"{_BODY}{name}" for name, _ in self.body.named_buffers()}

    def names_in(self, groups: tuple[str, ...], names: Iterable[str]) -> frozenset[str]:
        """Names of the tensors that belong to any of `groups`; a neck is part of `body`, `norm` lies within it."""
        norm = norm_names(self.body) if "norm" in groups else frozenset()
        prefixes = {*groups, "neck"} if "body" in groups else set(groups)
        return frozenset(name for name in names if name.partition(".")[0] in prefixes or name in norm)


def _over_positions(activations: Tensor) -> Tensor:
    """Mean over all axes behind the channels: [batch, channels, …] to [batch, channels]."""
    return activations.flatten(2).mean(2) if activations.dim() > 2 else activations


def norm_names(body: nn.Module) -> frozenset[str]:
    """Names of parameters and buffers inside normalisation layers."""
    return frozenset(
        f"{_BODY}{prefix}.{name}" if prefix else f"{_BODY}{name}"
        for prefix, module in body.named_modules()
        if isinstance(module, NORM_LAYERS)
        for name, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    )


def build_network(
    make_body: Callable[[], nn.Module],
    head: Head,
    num_classes: int,
    example: Tensor,
    streams: Streams,
    *,
    norm_stats: str = "running",
    necks: Sequence[Neck] = (),
    autocast: torch.dtype | None = None,
) -> tuple[Network, Tree, Tree, Tree]:
    """Make a network and its initial (params, buffers, fixed), like `example [1, …]` in type and device.

    `necks` are layers behind the body, in order, and part of it. Parameters of the body with `requires_grad=False` are
    among the fixed tensors; frozen normalisation layers keep their statistics. The body is drawn from the stream `init`
    and the head from streams of its own, so that all methods of a seed start from the same body. Modules draw from
    torch's global generator, which is seeded from the stream and put back.
    """
    with drawn_from(streams.integer("init", 0)):
        body = freeze_norms(make_body())
        for neck in necks:
            body = WithNeck(body, _probe_width(body.to(example), example), neck)
    if norm_stats == "batch":
        _use_batch_statistics(body)
    body = body.to(device=example.device, dtype=example.dtype)
    everything = _tree(body.named_parameters())
    fixed, buffers = _tree(frozen_parameters(body).items()), _tree(body.named_buffers())
    params = {name: leaf for name, leaf in everything.items() if name not in fixed}
    network = Network(
        body,
        head,
        _probe_width(body, example),
        num_classes,
        autocast=autocast,
        tied=len(everything) < len(list(body.named_parameters(remove_duplicate=False))),
        stages=stages_of(body),
        frozen=frozenset(fixed),
    )
    start = head.init(network.dim, num_classes, streams)
    _check_groups(start.params)
    network = replace(network, skips_singletons=_rejects_one_sample(network, everything, buffers, example))
    params |= {name: leaf.to(example) for name, leaf in start.params.items()}
    if not params:
        raise Misconfigured(
            f"there is nothing to train: model {class_name(body)} has no layer that is not frozen, and the method's "
            f"head is fixed. Set requires_grad=True for some layers, or choose a method with a trained head."
        )
    return network, params, buffers, fixed | {name: leaf.to(example) for name, leaf in start.fixed.items()}


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """Seed torch's global generator for modules that are made within, and put it back.

    Weights are drawn in float32 whatever the caller's default, so that they depend on the seed alone.
    """
    usual = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(usual)


def _tree(named: Iterable[tuple[str, Tensor]]) -> Tree:
    """Copies of a body's tensors, under their names in the trees."""
    return {f"{_BODY}{name}": leaf.detach().clone() for name, leaf in named}


def _check_groups(params: Tree) -> None:
    """A head's parameter outside the known groups would never be trained."""
    for name in params:
        if name.partition(".")[0] not in HEAD_GROUPS:
            raise Misconfigured(
                f"the head's parameter '{name}' belongs to no group; expected a name that starts with "
                f"{', '.join(HEAD_GROUPS)}. Rename it, for example to 'head.{name}'."
            )


def _use_batch_statistics(body: nn.Module) -> None:
    """Drop running statistics, so that normalisation uses the batch at test time too."""
    for module in body.modules():
        if isinstance(module, _BatchNorm):
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None


@torch.no_grad()
def _probe_width(body: nn.Module, example: Tensor) -> int:
    """Width of the features, found by a forward pass that also tells whether the inputs fit the model."""
    body.eval()
    name, shape = class_name(body), tuple(example.shape[1:])
    try:
        features = body(example.repeat_interleave(2, dim=0))
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise Misconfigured(
            f"model {name} cannot take inputs of shape {shape}: {reason}. Choose another model or reshape the data."
        ) from error
    if not isinstance(features, Tensor) or features.dim() != 2:
        got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise Misconfigured(
            f"model {name} returned {got} for a batch of 2 inputs of shape {shape}; expected features [2, dim]. "
            f"Flatten or pool its output."
        )
    return features.shape[1]


@torch.no_grad()
def _rejects_one_sample(network: Network, params: Tree, buffers: Tree, example: Tensor) -> bool:
    """Whether training on one sample fails because a normalisation layer sees a single value per channel."""
    trial = {name: leaf.clone() for name, leaf in buffers.items()}
    try:
        network.features(params, trial, example, training=True)
    except ValueError as error:
        if "more than 1 value per channel" in str(error):
            return True
        raise
    return False
