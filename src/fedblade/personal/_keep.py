"""Client updates that keep the model a client ends its round with."""

import torch

from fedblade.core.tree import Tree
from fedblade.core.views import EndView


def local_model(view: EndView) -> Tree:
    """The client's model after local training, parameters and statistics."""
    return view.params | view.buffers


def previous_model(view: EndView) -> Tree:
    """The same with a leaf `exists` that says 1, for state that starts without a model (`no_model`)."""
    like = next(iter(view.params.values()))
    return local_model(view) | {"exists": torch.ones((), dtype=like.dtype, device=like.device)}
