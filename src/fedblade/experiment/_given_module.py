"""The module that a run was given from Python, told by digests, so that the run does not go on with another one."""

import hashlib
import json

from torch import nn

from fedblade.core.errors import Misconfigured
from fedblade.core.frozen import frozen_parameters
from fedblade.core.tree import tree_digest
from fedblade.experiment._config import RunConfig
from fedblade.experiment._directory import PARTITION, RunDirectory

MODULE = "module"
"""The key of the digests in `partition.json`; runs of earlier versions and of models by name lack it."""


def module_digests(config: RunConfig, model: nn.Module | None) -> dict[str, dict[str, str]]:
    """Digests of a module's layers and of the weights that a run takes from it, as `partition.json` holds them.

    With `model.init` "seed" those are the frozen ones, since all others are drawn.
    """
    if model is None:
        return {}
    classes = [(path, type(layer).__name__) for path, layer in model.named_modules()]
    shapes = [(name, tuple(leaf.shape), leaf.requires_grad) for name, leaf in model.named_parameters()]
    drawn = config.model_settings.init == "seed"
    used = frozen_parameters(model) if drawn else dict((*model.named_parameters(), *model.named_buffers()))
    layers = hashlib.sha256(json.dumps([classes, shapes]).encode()).hexdigest()
    return {MODULE: {"layers": layers, "weights": tree_digest(used)}}


def check_module(directory: RunDirectory, config: RunConfig, model: nn.Module | None) -> None:
    """Refuse to go on with, or to return, a run that was given another module."""
    then = (directory.read_json(PARTITION) or {}).get(MODULE, {})
    now = module_digests(config, model).get(MODULE, {})
    for part in now:
        if then.get(part, now[part]) != now[part]:
            raise Misconfigured(
                f"the {part} of the module differ from those that '{directory.path}' was started with. Pass the same "
                f"module with the same weights and frozen layers, or choose another --out."
            )
