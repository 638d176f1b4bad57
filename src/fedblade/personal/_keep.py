"""The client update that keeps the model a client ends its round with."""

from fedblade.core.tree import Tree
from fedblade.core.views import EndView


def local_model(view: EndView) -> Tree:
    """The client's model after local training, parameters and statistics."""
    return view.params | view.buffers
