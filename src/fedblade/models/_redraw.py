"""New initial weights for a user's module."""

from torch import nn

from fedblade.core.errors import Misconfigured
from fedblade.core.frozen import freeze_norms


def redraw(module: nn.Module) -> None:
    """Draw all trained weights again, in place, from torch's global generator: each layer by its `reset_parameters`.

    Inner layers come first, so that a module which initialises its sublayers has the last word. Frozen parameters and
    the statistics of frozen normalisation layers do not change.
    """
    freeze_norms(module)
    for path, layer in reversed(list(module.named_modules())):
        frozen = [(leaf, leaf.detach().clone()) for leaf in layer.parameters() if not leaf.requires_grad]
        reset = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
        if callable(reset):
            reset()
            for leaf, kept in frozen:
                leaf.data.copy_(kept)
        elif any(leaf.requires_grad for leaf in layer.parameters(recurse=False)):
            name = type(layer).__name__
            raise Misconfigured(
                f"model.init = 'seed' cannot draw the parameters of {name} ('{path or 'the module itself'}') again: "
                f"{name} has no method reset_parameters. Add one, or use model.init=given; a model given as "
                f"file.py:function is called for every seed."
            )
