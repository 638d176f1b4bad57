"""How a network is made: the body with its necks, the head's initial tensors, and checks of the body."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedblade.core.errors import Misconfigured
from fedblade.core.frozen import freeze_norms, frozen_parameters
from fedblade.core.neck import Neck, WithNeck, class_name, stages_of
from fedblade.core.network import BODY, Network
from fedblade.core.streams import Stream, Streams
from fedblade.core.tree import Tree
from fedblade.core.views import Head

HEAD_GROUPS = ("neck", "projector", "head", "scale", "personal_head")


@dataclass(frozen=True)
class BodyOptions:
    """How a body is changed and run: `necks` are layers behind it, in order, which become part of it.

    With `norm_stats` "batch" normalisation layers use the statistics of the batch at test time too. `autocast` is the
    reduced type of the forward pass, or None.
    """

    norm_stats: str = "running"
    necks: Sequence[Neck] = ()
    autocast: torch.dtype | None = None


def build_network(
    make_body: Callable[[], nn.Module],
    head: Head,
    num_classes: int,
    example: Tensor,
    streams: Streams,
    options: BodyOptions | None = None,
) -> tuple[Network, Tree, Tree, Tree]:
    """Make a network and its initial (params, buffers, fixed), like `example [1, …]` in type and device.

    Parameters of the body with `requires_grad=False` are among the fixed tensors, and so are the statistics of frozen
    normalisation layers. The body is drawn from the stream `init` and the head from streams of its own, so that all
    methods of a seed start from the same body.
    """
    options = options or BodyOptions()
    body = _build_body(make_body, example, streams, options)
    everything = _tree(body.named_parameters())
    fixed, buffers = _tree(frozen_parameters(body).items()), _tree(body.named_buffers())
    network = Network(
        body,
        head,
        _probe_width(body, example),
        num_classes,
        autocast=options.autocast,
        tied=len(everything) < len(list(body.named_parameters(remove_duplicate=False))),
        stages=stages_of(body),
        frozen=frozenset(fixed),
    )
    start = head.init(network.dim, num_classes, streams)
    _check_groups(start.params)
    network = replace(network, skips_singletons=_rejects_one_sample(network, everything, buffers, example))
    params = {name: leaf for name, leaf in everything.items() if name not in fixed}
    params |= {name: leaf.to(example) for name, leaf in start.params.items()}
    if not params:
        raise Misconfigured(
            f"there is nothing to train: model {class_name(body)} has no layer that is not frozen, and the method's "
            f"head is fixed. Set requires_grad=True for some layers, or choose a method with a trained head."
        )
    return network, params, buffers, fixed | {name: leaf.to(example) for name, leaf in start.fixed.items()}


def _build_body(
    make_body: Callable[[], nn.Module], example: Tensor, streams: Streams, options: BodyOptions
) -> nn.Module:
    """The body with its necks. Modules draw from torch's global generator, which is seeded here and restored."""
    with drawn_from(streams.integer(Stream.INIT, 0)):
        body = freeze_norms(make_body())
        for neck in options.necks:
            body = WithNeck(body, _probe_width(body.to(example), example), neck)
    if options.norm_stats == "batch":
        _use_batch_statistics(body)
    return body.to(device=example.device, dtype=example.dtype)


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """Seed torch's global generator for modules that are made inside, and restore it afterwards.

    Weights are drawn in float32 whatever the caller's default type is, so that they depend on the seed alone.
    """
    default = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(default)


def _tree(named: Iterable[tuple[str, Tensor]]) -> Tree:
    """Copies of a body's tensors, under their names in trees."""
    return {f"{BODY}{name}": leaf.detach().clone() for name, leaf in named}


def _check_groups(params: Tree) -> None:
    """Refuse a head's parameter outside the known groups, which would never be trained."""
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
    """Width of the features, from a forward pass; an error says if the inputs do not fit the model."""
    body.eval()
    name, shape = class_name(body), tuple(example.shape[1:])
    try:
        features = body(example.repeat_interleave(2, dim=0))
    except Exception as error:
        reason = str(error).partition("\n")[0]
        advice = "Choose another model or reshape the data."
        if "'indices'" in reason:
            advice = "Inputs arrive as floating-point numbers: let the model call tokens.long() before its embedding."
        raise Misconfigured(f"model {name} cannot take inputs of shape {shape}: {reason}. {advice}") from error
    if not isinstance(features, Tensor) or features.dim() != 2:
        returned = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise Misconfigured(
            f"model {name} returned {returned} for a batch of 2 inputs of shape {shape}; expected features [2, dim]. "
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
