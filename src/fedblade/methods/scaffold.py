"""SCAFFOLD: control variates against client drift (Karimireddy et al., ICML 2020, option II)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from fedblade import payloads
from fedblade.core.method import Method, zeros
from fedblade.core.registry import methods
from fedblade.core.state import ServerState
from fedblade.core.sums import Sum, Sums
from fedblade.core.terms import GradientTerm, TermValue
from fedblade.core.tree import Tree, tree_map
from fedblade.core.views import EndView, StepView
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg
from fedblade.server import accumulate, average

CLASSIFIER = "head.weight"


@dataclass(frozen=True, kw_only=True)
class Drift(GradientTerm):
    """Gradient c − c_k: the server's control minus the client's control."""

    name: ClassVar[str] = "drift"

    def gradient(self, view: StepView) -> Tree:
        """The correction of every local step, c − c_k."""
        return tree_map(torch.sub, view.server["c"], view.client["c"])


@dataclass(frozen=True, kw_only=True)
class FixedClassifier(CrossEntropy):
    """Cross-entropy of the head's logits, whose gradient does not reach the classifier's weight."""

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        params = view.params | {CLASSIFIER: view.params[CLASSIFIER].detach()}
        return super().__call__(replace(view, params=params, output=view.head(params, view.fixed, view.features)))


def change_of(name: str, new: Callable[[EndView], Tree]) -> Sum:
    """The change of the client state `name` by `new`, divided by the number of all clients, summed without weights."""

    def change(view: EndView) -> Tree:
        updated, old = new(view), view.client[name]
        return {n: (updated[n].double() - old[n].double()) / view.population for n in updated if n in view.shared}

    return Sum(name, change, bound=1e3)


def _server(state: ServerState, sums: Sums) -> ServerState:
    return accumulate(average(state, sums), sums, "c")


@methods.register(paper="arXiv:1910.06378")
def scaffold(adaptive_division: bool = True, freeze_classifier: bool = False) -> Method:
    """Correct every local step by the difference between the server's and the client's control.

    Objective: CE, with g + c − c_k in place of the gradient g (before weight decay and momentum).
    Client, after q_k steps: c_k ← c_k − c + (w^t − w_k)/(lr·q_k). Server: averaging, c ← c + (1/K)·Σ_k (change of c_k).
    With `freeze_classifier`, as in the code of FedDr+, the gradient of CE with respect to the classifier's weight is
    set to 0. Controls and weight decay still change that weight, and the bias is trained as usual.
    Deviation: with momentum q_k is FedNova's effective step count (`adaptive_division`), not the number of steps.
    """

    def new_control(view: EndView) -> Tree:
        old, c, anchor = view.client["c"], view.server["c"], view.anchor
        scale = view.lr * (view.effective_steps if adaptive_division else view.num_steps)
        new = {n: old[n].double() - c[n].double() + (anchor[n].double() - view.params[n].double()) / scale for n in old}
        # Parameters that stay on the client cannot drift from other clients: their control remains 0.
        return old | {n: leaf.to(old[n].dtype) for n, leaf in new.items() if n in view.shared}

    return replace(
        fedavg(),
        losses=(FixedClassifier() if freeze_classifier else CrossEntropy(), Drift()),
        sums=(*payloads.MODEL, change_of("c", new_control)),
        server=_server,
        client_state={"c": zeros},
        client_update={"c": new_control},
        server_state={"c": zeros},
    )
