"""FedDyn: dynamic regularisation (Acar et al., ICLR 2021)."""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from fedblade import payloads
from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method, zeros
from fedblade.core.registry import methods
from fedblade.core.terms import GradientTerm
from fedblade.core.tree import Tree, tree_map
from fedblade.core.views import EndView, StepView
from fedblade.losses import CrossEntropy, Proximal
from fedblade.methods.fedavg import fedavg
from fedblade.methods.scaffold import change_of
from fedblade.server import average_less_h


@dataclass(frozen=True, kw_only=True)
class Dynamic(GradientTerm):
    """Gradient −h_k of the linear term −⟨h_k, w⟩."""

    name: ClassVar[str] = "dynamic"

    def gradient(self, view: StepView) -> Tree:
        """−h_k."""
        return tree_map(lambda h: -h, view.client["h"])


@methods.register(paper="arXiv:2111.04263", tune={"alpha_dyn": (0.001, 0.01, 0.1)})
def feddyn(alpha_dyn: float = 0.01) -> Method:
    """Make the stationary points of clients and server agree.

    Objective: L_k = CE − ⟨h_k, w⟩ + (α/2)·‖w − w^t‖², added as gradients. Then h_k ← h_k − α(w_k − w^t).
    Server: h ← h − (α/K)·Σ_k (w_k − w^t) over the cohort, w ← Σ_k a_k w_k − h/α.
    Deviation: the mean has the run's weights a_k; in the paper they are equal. Σ_k (w_k − w^t) has no weights, so
    clients send it separately. The authors' code divides a client's α by its relative size, n_k over the mean of all
    clients. The code of FedETF takes BatchNorm statistics from the first client of the cohort; here they are averaged.
    """
    if not 0 < alpha_dyn < math.inf:
        raise Misconfigured(
            f"alpha_dyn={alpha_dyn!r}: expected a number above 0, such as 0.01. Without the term, use method 'fedavg'."
        )

    def new_h(view: EndView) -> Tree:
        old, anchor = view.client["h"], view.anchor
        new = {n: old[n].double() - alpha_dyn * (view.params[n].double() - anchor[n].double()) for n in old}
        # Parameters that stay on the client have no global counterpart: their h remains 0.
        return old | {n: leaf.to(old[n].dtype) for n, leaf in new.items() if n in view.shared}

    return replace(
        fedavg(),
        losses=(CrossEntropy(), Proximal(weight=alpha_dyn), Dynamic()),
        sums=(*payloads.MODEL, change_of("h", new_h)),
        server=partial(average_less_h, alpha=alpha_dyn),
        client_state={"h": zeros},
        client_update={"h": new_h},
        server_state={"h": zeros},
        broadcast=(),
    )
