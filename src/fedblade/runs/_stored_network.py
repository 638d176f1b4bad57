"""The network of a finished run, made anew and filled with the tensors of its file."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import Misconfigured
from fedblade.core.state import ServerState, unflatten
from fedblade.core.tree import Tree
from fedblade.models import Output
from fedblade.results import PARTITION, RunDirectory
from fedblade.runs._network import Made, bare_network
from fedblade.runs._revisions import keeps_last_layers

_OUTPUTS: tuple[Output, ...] = ("auto", "features", "logits")


def stored_network(
    config: RunConfig, directory: RunDirectory, tensors: Tree, facts: dict[str, Any], model: nn.Module | None
) -> tuple[Made, ServerState]:
    """The run's network and its tensors; `model` is a module that was passed from Python.

    Runs of before the last layer of a user's module was found by running it may have kept that layer in the body. For
    these the first reading of the module's output that fits the file is taken.
    """
    chosen = config.model_settings.output
    older = chosen == "auto" and keeps_last_layers(directory.read_json(PARTITION) or {}, config)
    refused: list[str] = []
    for output in _OUTPUTS if older else (chosen,):
        try:
            made = _empty_network(config, output, facts, model)
            return made, _filled(made, tensors, directory, made.cut_off if older else frozenset())
        except Misconfigured as error:
            refused.append(str(error))
    hint = " If this is the module of the run, another version of fedblade made the run." if older else ""
    raise Misconfigured(f"{refused[0]}{hint}")


def _empty_network(config: RunConfig, output: Output, facts: dict[str, Any], model: nn.Module | None) -> Made:
    """The run's network with initial weights, to be filled."""
    # The weights come from the file, so a user's module is not drawn anew.
    changes = {"output": output} | ({"init": "given"} if config.model.is_own else {})
    config = replace(config, model_settings=config.model_settings.model_copy(update=changes))
    shape = tuple(facts["input_shape"])
    example = torch.zeros(1, *shape, dtype=getattr(torch, config.general.dtype))
    return bare_network(config, config.build_method(), facts["num_classes"], shape, example, model)[0]


def _filled(made: Made, tensors: Tree, directory: RunDirectory, unused: frozenset[str]) -> ServerState:
    """The tensors of a file, in the order of the network's, which must have the same names and shapes.

    The file may hold `unused` tensors besides.
    """
    parts, own = unflatten(tensors), made.params | made.buffers | made.fixed
    found = {name: leaf.shape for tree in parts.values() for name, leaf in tree.items() if name not in unused}
    known = {name: leaf.shape for name, leaf in own.items()}
    if known != found:
        different = min(name for name in known | found if known.get(name) != found.get(name))
        raise Misconfigured(
            f"the model does not fit the run in '{directory.path}': they differ in '{different}'. Pass the module that "
            f"the run was given, of the same layers."
        )
    params, buffers, fixed = (
        {name: parts[part][name] for name in own if name in parts.get(part, {})}
        for part in ("params", "buffers", "fixed")
    )
    return ServerState(params, buffers, fixed)
