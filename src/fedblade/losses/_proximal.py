"""The proximal term: stay near the model received."""

from dataclasses import dataclass
from typing import ClassVar

from fedblade.core.registry import losses
from fedblade.core.terms import GradientTerm
from fedblade.core.tree import Tree
from fedblade.core.views import StepView


@losses.register("proximal", paper="arXiv:1812.06127, Eq. 2")
@dataclass(frozen=True, kw_only=True)
class Proximal(GradientTerm):
    """Gradient μ(w - w_t) of (μ/2)·‖w - w_t‖² over the trained tensors, with μ = `weight`.

    Deviation: none in the update; the penalty is added to the gradient and its value is never formed.
    """

    name: ClassVar[str] = "prox"

    def gradient(self, view: StepView) -> Tree:
        """The step away from the anchor, w - w_t, which the weight multiplies."""
        return {name: leaf.detach() - view.anchor[name] for name, leaf in view.params.items()}
