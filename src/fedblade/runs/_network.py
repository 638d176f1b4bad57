"""The network of a run: a model by name or a user's own module, and the method's head behind it."""

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method
from fedblade.core.neck import Neck
from fedblade.core.network import Network
from fedblade.core.network_building import BodyOptions, build_network, drawn_from
from fedblade.core.streams import Streams
from fedblade.core.tree import Tree, tree_digest
from fedblade.models import Adapted, as_backbone, own_module, redraw


@dataclass(frozen=True)
class Made:
    """A network, its initial tensors, and what the user must know of the model before the first round.

    `cut_off` names the tensors of the last layer of a user's module, as they would be called if it were in the body.
    """

    network: Network
    params: Tree
    buffers: Tree
    fixed: Tree
    notes: tuple[str, ...] = ()
    cut_off: frozenset[str] = frozenset()


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
    bare, adapted = bare_network(config, method, num_classes, input_shape, example, model, autocast=autocast)
    made, fate = _adopted(config, method, bare, adapted)
    if not config.model.is_own:
        return made
    notes = _notes(made, adapted, fate)
    if config.model_settings.init == "given" and _is_same_for_all_seeds(config, input_shape, model):
        notes.append(
            "model: every seed starts from the weights that were given, so the spread over seeds leaves initialisation "
            "out (model.init=seed draws them anew)"
        )
    return replace(made, notes=tuple(notes))


def bare_network(
    config: RunConfig,
    method: Method,
    num_classes: int,
    input_shape: tuple[int, ...],
    example: Tensor,
    model: nn.Module | None,
    *,
    autocast: torch.dtype | None = None,
) -> tuple[Made, Adapted]:
    """The same network before its head takes weights from a user's module: all that a network needs which is filled."""
    adapted: list[Adapted] = []
    settings, necks = config.model_settings, necks_of(config, method)

    def make_body() -> nn.Module:
        module = config.model.make(input_shape) if model is None else copy.deepcopy(model)
        if config.model.is_own and settings.init == "seed":
            redraw(own_module(module))
        adapted.append(as_backbone(module, example, num_classes, settings.output))
        return adapted[0].body

    built = build_network(
        make_body,
        method.head,
        num_classes,
        example,
        Streams(config.general.seed),
        BodyOptions(settings.norm_stats, necks, autocast),
    )
    prefix = "body." * (1 + len(necks)) + "module."
    cut_off = frozenset(prefix + name for name in adapted[0].cut_names)
    return Made(*built, cut_off=cut_off), adapted[0]


def necks_of(config: RunConfig, method: Method) -> list[Neck]:
    """The layers between extractor and head: the model's, then the method's."""
    return [neck for neck in (config.model_settings.neck_layers, method.neck) if neck is not None]


def _adopted(config: RunConfig, method: Method, made: Made, adapted: Adapted) -> tuple[Made, str]:
    """The head with the weights of a classifier that was cut off, where they fit, and in words what became of them."""
    layer = adapted.classifier
    if layer is None:
        return made, ""
    fits = not necks_of(config, method) and layer.out_features == made.network.num_classes
    bias = None if layer.bias is None else layer.bias.detach().clone()
    given = method.head.adopt(layer.weight.detach().clone(), bias) if fits else None
    if given is None:
        return made, f"{adapted.cut} is cut off and the head of {config.method.name} takes its place"
    frozen = [name for name, leaf in layer.named_parameters() if not leaf.requires_grad]
    if given.params and frozen:
        raise Misconfigured(
            f"{adapted.cut} has a frozen {' and a frozen '.join(frozen)} (requires_grad=False), but the head of "
            f"{config.method.name} is trained. Set requires_grad=True, use a method whose head stays as it is "
            f"(fedbabu), or set model.output=features."
        )
    made = replace(made, params=made.params | given.params, fixed=made.fixed | given.fixed)
    return made, f"{adapted.cut} is cut off and the head starts from its weights"


def _notes(made: Made, adapted: Adapted, fate: str) -> list[str]:
    """What was made of a user's module."""
    parts = [adapted.found, *([fate] if fate else [])]
    notes = [" ".join([f"model: {'; '.join(parts)}.", *([adapted.hint] if adapted.hint else [])])]
    frozen = [made.fixed[name].numel() for name in made.network.frozen]
    if frozen:
        size = f"({sum(frozen):,} numbers)"
        one = f"1 tensor {size} is frozen: it stays and does not travel"
        several = f"{len(frozen)} tensors {size} are frozen: they stay and do not travel"
        notes.append(f"model: {one if len(frozen) == 1 else several}")
    return notes


def _is_same_for_all_seeds(config: RunConfig, input_shape: tuple[int, ...], model: nn.Module | None) -> bool:
    """Whether a user's module has trained weights and no seed changes them.

    A function is called under two seeds to find out: it may draw weights, load them, or draw and then replace them.
    """

    def trained(seed: int) -> Tree:
        with drawn_from(seed):
            module = config.model.make(input_shape) if model is None else model
        return {name: leaf for name, leaf in module.named_parameters() if leaf.requires_grad}

    weights = trained(0)
    return bool(weights) and (model is not None or tree_digest(weights) == tree_digest(trained(1)))
