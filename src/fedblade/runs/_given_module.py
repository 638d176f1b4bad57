"""Digests of a module that was passed from Python, so that a run does not go on with another module."""

import hashlib
import json
from collections.abc import Iterator

from torch import nn

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import Misconfigured
from fedblade.core.frozen import frozen_parameters
from fedblade.core.tree import tree_digest
from fedblade.results import RunDirectory

MODULE = "module"
"""The key of the digests in `partition.json`. It is absent for models by name, and in runs of earlier versions."""


def module_digests(config: RunConfig, model: nn.Module | None) -> dict[str, dict[str, str]]:
    """Digests for `partition.json`: of a module's layers, of its frozen weights, and of all weights that a run uses.

    With `model.init` "seed" a run uses only the frozen weights: all others are drawn.
    """
    if model is None:
        return {}
    classes = [(path, type(layer).__name__) for path, layer in model.named_modules()]
    shapes = [(name, tuple(leaf.shape), leaf.requires_grad) for name, leaf in model.named_parameters()]
    frozen = frozen_parameters(model)
    is_drawn = config.model_settings.init == "seed"
    used = frozen if is_drawn else dict((*model.named_parameters(), *model.named_buffers()))
    layers = hashlib.sha256(json.dumps([classes, shapes]).encode()).hexdigest()
    return {MODULE: {"layers": layers, "frozen weights": tree_digest(frozen), "weights": tree_digest(used)}}


def check_module(directory: RunDirectory, config: RunConfig, model: nn.Module | None) -> Iterator[str]:
    """Refuse a module with other layers or other frozen weights than the run was started with; yield notes.

    Weights that train may differ: a script that builds its module again goes on with the weights of the run.
    """
    stored = (directory.partition_facts() or {}).get(MODULE, {})
    present = module_digests(config, model).get(MODULE, {})
    different = [part for part in present if stored.get(part, present[part]) != present[part]]
    if different and different[0] != "weights":
        raise Misconfigured(
            f"the {different[0]} of the module differ from those that '{directory.path}' was started with. Pass the "
            f"same module, or choose another --out."
        )
    if different:
        yield (
            f"'{directory.path}' was started from other weights than those of the module that was passed now. The "
            f"weights of the run count. Choose another --out to start from the module's."
        )
