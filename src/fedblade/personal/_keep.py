"""The client update that keeps a client's model after local training."""

from fedblade.core.tree import Tree
from fedblade.core.views import EndView


def local_model(view: EndView) -> Tree:
    """The client's model after local training, parameters and statistics."""
    return view.params | view.buffers
