"""The network of a run: a model by name or a module from the user, and the method's head behind it."""

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
from fedblade.models import Adapted, as_backbone, redraw, user_module


@dataclass(frozen=True)
class BuiltNetwork:
    """A network, its initial tensors, and notes about the model for the user.

    If the last layer of the user's module was cut off, `cut_off` has the names that its tensors would have in the body.
    """

    network: Network
    params: Tree
    buffers: Tree
    fixed: Tree
    notes: tuple[str, ...] = ()
    cut_off: frozenset[str] = frozenset()


def make_network(
    config: RunConfig, method: Method, num_classes: int, example: Tensor, model: nn.Module | None
) -> BuiltNetwork:
    """Build the network for inputs like `example [1, …]`. `model` is a module from Python, instead of a name.

    The same seed gives the same body to every method.
    """
    assembled, adapted = assemble_network(config, method, num_classes, example, model)
    built, head_note = _adopt_classifier(config, method, assembled, adapted)
    if not config.model.is_own:
        return built
    notes = _notes(built, adapted, head_note)
    if config.model_settings.init == "given" and _ignores_seed(config, example, model):
        notes.append(
            "model: every seed starts from the weights that were given, so the spread over seeds leaves initialisation "
            "out (model.init=seed draws them anew)"
        )
    return replace(built, notes=tuple(notes))


def assemble_network(
    config: RunConfig, method: Method, num_classes: int, example: Tensor, model: nn.Module | None
) -> tuple[BuiltNetwork, Adapted]:
    """Body, necks and head with their initial weights; the head takes no weights from the user's module yet."""
    adapted: list[Adapted] = []
    settings, necks = config.model_settings, necks_of(config, method)

    def make_body() -> nn.Module:
        module = config.model.make(tuple(example.shape[1:])) if model is None else copy.deepcopy(model)
        if config.model.is_own and settings.init == "seed":
            redraw(user_module(module))
        adapted.append(as_backbone(module, example, num_classes, settings.output))
        return adapted[0].body

    tensors = build_network(
        make_body,
        method.head,
        num_classes,
        example,
        Streams(config.general.seed),
        BodyOptions(settings.norm_stats, necks, torch.bfloat16 if config.general.autocast == "bf16" else None),
    )
    prefix = "body." * (1 + len(necks)) + "module."
    cut_off = frozenset(prefix + name for name in adapted[0].cut_names)
    return BuiltNetwork(*tensors, cut_off=cut_off), adapted[0]


def necks_of(config: RunConfig, method: Method) -> list[Neck]:
    """The layers between extractor and head: those of the model, then those of the method."""
    return [neck for neck in (config.model_settings.neck_layers, method.neck) if neck is not None]


def _adopt_classifier(
    config: RunConfig, method: Method, built: BuiltNetwork, adapted: Adapted
) -> tuple[BuiltNetwork, str]:
    """Start the head from the weights of the classifier that was cut off, if they fit. Also returns a note."""
    layer = adapted.classifier
    if layer is None:
        return built, ""
    fits = not necks_of(config, method) and layer.out_features == built.network.num_classes
    bias = None if layer.bias is None else layer.bias.detach().clone()
    adopted = method.head.adopt(layer.weight.detach().clone(), bias) if fits else None
    if adopted is None:
        return built, f"{adapted.cut} is cut off and the head of {config.method.name} takes its place"
    frozen = [name for name, leaf in layer.named_parameters() if not leaf.requires_grad]
    if adopted.params and frozen:
        raise Misconfigured(
            f"{adapted.cut} has a frozen {' and a frozen '.join(frozen)} (requires_grad=False), but the head of "
            f"{config.method.name} is trained. Set requires_grad=True, use a method whose head stays as it is "
            f"(fedbabu), or set model.output=features."
        )
    built = replace(built, params=built.params | adopted.params, fixed=built.fixed | adopted.fixed)
    return built, f"{adapted.cut} is cut off and the head starts from its weights"


def _notes(built: BuiltNetwork, adapted: Adapted, head_note: str) -> list[str]:
    """Notes about the user's module: which layers are body and head, and which are frozen."""
    sentence = "; ".join(part for part in (adapted.found, head_note) if part)
    notes = [f"model: {sentence}." + (f" {adapted.hint}" if adapted.hint else "")]
    frozen = [built.fixed[name].numel() for name in built.network.frozen]
    if frozen:
        size = f"({sum(frozen):,} numbers)"
        one = f"1 tensor {size} is frozen: it stays and does not travel"
        several = f"{len(frozen)} tensors {size} are frozen: they stay and do not travel"
        notes.append(f"model: {one if len(frozen) == 1 else several}")
    return notes


def _ignores_seed(config: RunConfig, example: Tensor, model: nn.Module | None) -> bool:
    """Whether the user's module starts from the same trained weights with every seed.

    If the module comes from a function, the function is called with two seeds: it may draw its weights or load them.
    """

    def trained_weights(seed: int) -> Tree:
        with drawn_from(seed):
            module = config.model.make(tuple(example.shape[1:])) if model is None else model
        return {name: leaf for name, leaf in module.named_parameters() if leaf.requires_grad}

    weights = trained_weights(0)
    return bool(weights) and (model is not None or tree_digest(weights) == tree_digest(trained_weights(1)))
