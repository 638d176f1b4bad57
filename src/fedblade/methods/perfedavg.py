"""Per-FedAvg: a model that is good after one local step (Fallah et al., NeurIPS 2020)."""

import math
from dataclasses import replace
from typing import Literal

from fedblade import payloads
from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method, Own
from fedblade.core.phase import Lookahead, MoveView, Phase, Sgd
from fedblade.core.registry import methods
from fedblade.core.sums import Sum
from fedblade.core.tree import Tree, tree_map
from fedblade.core.views import EndView
from fedblade.methods.fedavg import fedavg


def _counted_once(each: Sum) -> Sum:
    """The payload with weight 1 for every client that made a step."""

    def of(view: EndView) -> Tree:
        return each.of(replace(view, weight=1.0 * (view.num_steps > 0)))

    return replace(each, of=of, bound=1.0) if each.name == "weight" else replace(each, of=of)


@methods.register(paper="arXiv:2002.07948")
def perfedavg(
    alpha_in: float | Literal["auto"] = "auto", beta_out: float = 0.001, carry_momentum: bool = False
) -> Method:
    """Learn a model that one local step makes a good one, with first-order gradients.

    Objective, for two batches b₁ and b₂ a step: w' = w − α_in·∇CE(w; b₁), then w ← w − β_out·∇CE(w'; b₂), with the
    run's momentum and decay in the latter; "auto" α_in is the round's rate. An only batch serves as both.
    Server: the plain mean over the cohort, whatever the run's weighting.
    Own models: the final model after one step at α_in and one at β_out, on a batch each.
    With `carry_momentum`, as in the code of FedBABU, both steps share one momentum m: m ← ρm + ∇CE(w; b₁) and
    w' = w − α_in·m, then m ← ρm + ∇CE(w'; b₂) and w ← w − β_out·m, for own models too. Decay stays in the second step;
    that code has none.
    Deviation: the second derivative is left out (the paper's FO variant), and the Hessian-free variant is not offered.
    """
    if alpha_in != "auto" and not 0 <= alpha_in < math.inf:
        raise Misconfigured(f"alpha_in={alpha_in!r}: expected a number from 0 on, or 'auto' for the run's rate.")
    if not 0 < beta_out < math.inf:
        raise Misconfigured(f"beta_out={beta_out!r}: expected a number above 0, such as 0.001.")

    def inner_step(view: MoveView) -> Tree:
        rate = view.lr if alpha_in == "auto" else alpha_in
        return tree_map(lambda w, g: w - rate * g, view.params, view.gradient)

    inner = Sgd(lr=None if alpha_in == "auto" else alpha_in, momentum=0.0, weight_decay=0.0)
    outer = Sgd(lr=beta_out, momentum=None if carry_momentum else 0.0)
    adapting = (
        Phase(epochs=1, steps=1, sgd=inner),
        Phase(epochs=1, steps=1, sgd=outer, carries_momentum=carry_momentum),
    )
    look = Lookahead(inner_step, fresh_batch=True, momentum=carry_momentum)
    return replace(
        fedavg(),
        phases=(Phase(sgd=Sgd(lr=beta_out), lookahead=look),),
        sums=tuple(_counted_once(each) for each in payloads.MODEL),
        own=Own(finetune=adapting, tuning={"ft": (adapting,)}),
    )
