"""The proximal term: stay near the model received, or near one that the client holds."""

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

    w_t is the model received, or the one that `of` names in the client's state.

    Deviation: none in the update; the penalty is added to the gradient and its value is never formed.
    """

    name: ClassVar[str] = "prox"
    of: str = "anchor"

    def gradient(self, view: StepView) -> Tree:
        """The step away from the anchor, w - w_t, which the weight multiplies."""
        near = view.anchor if self.of == "anchor" else view.client[self.of]
        return {name: leaf.detach() - near[name] for name, leaf in view.params.items()}
