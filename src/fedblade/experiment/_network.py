"""The network of a run: a model by name or a user's own module, and the method's head behind it."""

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method
from fedblade.core.neck import Neck
from fedblade.core.network import Network, build_network
from fedblade.core.streams import Streams
from fedblade.core.tree import Tree
from fedblade.experiment._config import RunConfig
from fedblade.models import Adapted, as_backbone, redraw


@dataclass(frozen=True)
class Made:
    """A network, its initial tensors, and what the user must know of the model before the first round."""

    network: Network
    params: Tree
    buffers: Tree
    fixed: Tree
    notes: tuple[str, ...] = ()


def make_network(
    config: RunConfig,
    method: Method,
    num_classes: int,
    input_shape: tuple[int, ...],
    example: Tensor,
    model: nn.Module | None,
    *,
    autocast: torch.dtype | None = None,
) -> Made:
    """Build the network for inputs like `example [1, …]`; `model` is a module that was passed instead of a name.

    The same seed gives the same body to every method.
    """
    adapted: list[Adapted] = []
    settings, necks = config.model_settings, necks_of(config, method)

    def make_body() -> nn.Module:
        module = config.model.make(input_shape) if model is None else copy.deepcopy(model)
        if model is not None and settings.init == "seed":
            redraw(module)
        adapted.append(as_backbone(module, example, num_classes, settings.output))
        return adapted[0].body

    built = build_network(
        make_body,
        method.head,
        num_classes,
        example,
        Streams(config.general.seed),
        norm_stats=settings.norm_stats,
        necks=necks,
        autocast=autocast,
    )
    made, fate = _adopted(config, method, Made(*built), adapted[0], is_direct=not necks)
    return replace(made, notes=_notes(config, made, adapted[0], fate))


def necks_of(config: RunConfig, method: Method) -> list[Neck]:
    """The layers between extractor and head: the model's, then the method's."""
    return [neck for neck in (config.model_settings.neck_layers, method.neck) if neck is not None]


def _adopted(config: RunConfig, method: Method, made: Made, adapted: Adapted, *, is_direct: bool) -> tuple[Made, str]:
    """The head with the weights of a classifier that was cut off, where they fit, and in words what became of them."""
    layer = adapted.classifier
    if layer is None:
        return made, ""
    fits = is_direct and layer.out_features == made.network.num_classes
    bias = None if layer.bias is None else layer.bias.detach().clone()
    given = method.head.adopt(layer.weight.detach().clone(), bias) if fits else None
    if given is None:
        return made, f"{adapted.cut} is cut off and the head of {config.method.name} takes its place"
    if given.params and not layer.weight.requires_grad:
        raise Misconfigured(
            f"{adapted.cut} is frozen (requires_grad=False), but the head of {config.method.name} is trained. Set "
            f"requires_grad=True, use a method whose head stays as it is (fedbabu), or set model.output=features."
        )
    made = replace(made, params=made.params | given.params, fixed=made.fixed | given.fixed)
    return made, f"{adapted.cut} is cut off and the head starts from its weights"


def _notes(config: RunConfig, made: Made, adapted: Adapted, fate: str) -> tuple[str, ...]:
    """What was made of a user's module; nothing of the models that come with this library."""
    if not config.model.is_own:
        return ()
    parts = [adapted.found, *([fate] if fate else [])]
    notes = [" ".join([f"model: {'; '.join(parts)}.", *([adapted.hint] if adapted.hint else [])])]
    frozen = [made.fixed[name].numel() for name in made.network.frozen]
    if frozen:
        notes.append(f"model: {len(frozen)} tensors ({sum(frozen):,} numbers) are frozen: they stay and do not travel")
    if config.model_settings.init == "given":
        notes.append(
            "model: every seed starts from the weights that were given, so the spread over seeds leaves initialisation "
            "out (model.init=seed draws them anew)"
        )
    return tuple(notes)
