"""The module that a run was given from Python, told by digests, so that the run does not go on with another one."""

import hashlib
import json
from collections.abc import Iterator

from torch import nn

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import Misconfigured
from fedblade.core.frozen import frozen_parameters
from fedblade.core.tree import tree_digest
from fedblade.results import PARTITION, RunDirectory

MODULE = "module"
"""The key of the digests in `partition.json`; runs of earlier versions and of models by name lack it."""


def module_digests(config: RunConfig, model: nn.Module | None) -> dict[str, dict[str, str]]:
    """Digests of a module's layers, of its frozen weights and of all weights a run starts from, for `partition.json`.

    With `model.init` "seed" a run takes the frozen weights alone, since all others are drawn.
    """
    if model is None:
        return {}
    classes = [(path, type(layer).__name__) for path, layer in model.named_modules()]
    shapes = [(name, tuple(leaf.shape), leaf.requires_grad) for name, leaf in model.named_parameters()]
    frozen = frozen_parameters(model)
    drawn = config.model_settings.init == "seed"
    used = frozen if drawn else dict((*model.named_parameters(), *model.named_buffers()))
    layers = hashlib.sha256(json.dumps([classes, shapes]).encode()).hexdigest()
    return {MODULE: {"layers": layers, "frozen weights": tree_digest(frozen), "weights": tree_digest(used)}}


def check_module(directory: RunDirectory, config: RunConfig, model: nn.Module | None) -> Iterator[str]:
    """Refuse a run that was given a module with other layers or other frozen weights; yield what the user should know.

    Weights that train may differ: a script that makes its module anew goes on with the weights of the run.
    """
    then = (directory.read_json(PARTITION) or {}).get(MODULE, {})
    now = module_digests(config, model).get(MODULE, {})
    other = [part for part in now if then.get(part, now[part]) != now[part]]
    if other and other[0] != "weights":
        raise Misconfigured(
            f"the {other[0]} of the module differ from those that '{directory.path}' was started with. Pass the same "
            f"module, or choose another --out."
        )
    if other:
        yield (
            f"'{directory.path}' was started from other weights than those of the module that was passed now. The "
            f"weights of the run count. Choose another --out to start from the module's."
        )
