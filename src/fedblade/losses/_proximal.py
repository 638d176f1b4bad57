"""The proximal term: stay near the received model, or near a model in the client's state."""

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

    w_t is the received model, or the model that `of` names in the client's state.

    Deviation: none in the update; the term is added as a gradient and its value is never computed.
    """

    name: ClassVar[str] = "prox"
    of: str = "anchor"

    def gradient(self, view: StepView) -> Tree:
        """The difference w - w_t, which the weight multiplies."""
        near = view.anchor if self.of == "anchor" else view.client[self.of]
        return {name: leaf.detach() - near[name] for name, leaf in view.params.items()}
