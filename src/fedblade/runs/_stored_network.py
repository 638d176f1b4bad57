"""The network of a finished run, built again and filled with the tensors of its file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import Misconfigured
from fedblade.core.network import BODY
from fedblade.core.state import ServerState, may_hold, unflatten
from fedblade.core.tree import Tree
from fedblade.core.words import listing
from fedblade.models import Output
from fedblade.results import RunDirectory
from fedblade.runs._network import BuiltNetwork, assemble_network
from fedblade.runs._revisions import may_keep_last_layer

Shapes = Mapping[str, Sequence[int]]
_MOST_NAMED = 3
_OUTPUTS: tuple[Output, ...] = ("auto", "features", "logits")


def stored_network(
    config: RunConfig, directory: RunDirectory, tensors: Tree, facts: dict[str, Any], model: nn.Module | None
) -> tuple[BuiltNetwork, ServerState]:
    """The run's network and its tensors. `model` is a module from Python.

    Older versions could leave the last layer of a user's module in the body. For their runs, the readings of the
    module's output are tried in turn, and the first one that fits the file is used.
    """
    output = config.model_settings.output
    is_old = output == "auto" and may_keep_last_layer(directory.partition_facts() or {}, config)
    refusals: list[str] = []
    for reading in _OUTPUTS if is_old else (output,):
        try:
            built = _empty_network(config, reading, facts, model)
            return built, _filled(built, tensors, directory, built.cut_off if is_old else frozenset())
        except Misconfigured as error:
            refusals.append(str(error))
    hint = " If this is the module of the run, another version of fedblade made the run." if is_old else ""
    raise Misconfigured(f"{refusals[0]}{hint}")


def _empty_network(config: RunConfig, output: Output, facts: dict[str, Any], model: nn.Module | None) -> BuiltNetwork:
    """The run's network with initial weights, in full precision."""
    # The weights come from the file, so the weights of a user's module need not be drawn.
    changes = {"output": output} | ({"init": "given"} if config.model.is_own else {})
    config = replace(
        config,
        general=config.general.model_copy(update={"autocast": "none"}),
        model_settings=config.model_settings.model_copy(update=changes),
    )
    example = torch.zeros(1, *facts["input_shape"], dtype=getattr(torch, config.general.dtype))
    return assemble_network(config, config.build_method(), facts["num_classes"], example, model)[0]


def _filled(built: BuiltNetwork, tensors: Tree, directory: RunDirectory, unused: frozenset[str]) -> ServerState:
    """The tensors of the file in the network's order. Names and shapes must agree; `unused` tensors are ignored."""
    parts, initial = unflatten(tensors), built.params | built.buffers | built.fixed
    in_file = {name: leaf.shape for tree in parts.values() for name, leaf in tree.items() if name not in unused}
    in_network = {name: leaf.shape for name, leaf in initial.items()}
    fits = {name for name in in_network.keys() & in_file.keys() if may_hold(name, in_network[name], in_file[name])}
    if in_network.keys() | in_file.keys() != fits:
        raise Misconfigured(
            f"the model does not fit the run in '{directory.path}': {_differences(in_file, in_network)}. Pass a module "
            f"of the same layers as the one that the run was given."
        )
    params, buffers, fixed = (
        {name: parts[part][name] for name in initial if name in parts.get(part, {})}
        for part in ("params", "buffers", "fixed")
    )
    return ServerState(params, buffers, fixed)


def _differences(in_run: Shapes, in_model: Shapes) -> str:
    """In words, the tensors that a run and a model do not share, by the names that they have in the user's module."""
    run, model = _own_names(in_run), _own_names(in_model)
    if run == model:
        run, model = in_run, in_model
    both = [name for name in run if name in model and model[name] != run[name]]
    parts = {
        "": [f"'{name}' is {_shape(run[name])} in the run and {_shape(model[name])} in the model" for name in both],
        "the model lacks ": [f"'{name}' {_shape(run[name])}" for name in run if name not in model],
        "the run lacks ": [f"'{name}' {_shape(model[name])}" for name in model if name not in run],
    }
    return "; ".join(f"{verb}{listing(found, _MOST_NAMED)}" for verb, found in parts.items() if found)


def _own_names(shapes: Shapes) -> Shapes:
    """The shapes under the names that the tensors have in the user's module."""
    own = {name.removeprefix(BODY).removeprefix("module."): shape for name, shape in shapes.items()}
    return {name: own[name] for name in sorted(own, key=_layer_by_layer)}


def _layer_by_layer(name: str) -> tuple[str, bool, str]:
    """Layers in order, the weight of each before its other tensors."""
    layer, _, last = name.rpartition(".")
    return layer, last != "weight", last


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"
