"""Per-FedAvg: a model that is good after one local step on a client (Fallah et al., NeurIPS 2020)."""

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


def _equally_weighted(payload: Sum) -> Sum:
    """The sum with weight 1 for every client that made a step."""

    def equal(view: EndView) -> Tree:
        return payload.of(replace(view, weight=1.0 * (view.num_steps > 0)))

    return replace(payload, of=equal, bound=1.0) if payload.name == "weight" else replace(payload, of=equal)


@methods.register(paper="arXiv:2002.07948", tune={"beta_out": (0.001, 0.003, 0.01, 0.03)})
def perfedavg(
    alpha_in: float | Literal["auto"] = "auto", beta_out: float = 0.001, carry_momentum: bool = False
) -> Method:
    """Learn a model that is good after one more local step, with first-order gradients.

    Objective: every step has two batches b₁ and b₂, w' = w − α_in·∇CE(w; b₁), then w ← w − β_out·∇CE(w'; b₂), with the
    run's momentum and decay in the second; "auto" α_in is the round's rate. A client with one batch uses it as both.
    Server: the plain mean over the cohort, whatever the run's weighting.
    Personal models: the final model after one step at α_in and one step at β_out, each on one batch.
    With `carry_momentum`, as in the code of FedBABU, both steps share one momentum m: m ← ρm + ∇CE(w; b₁) and
    w' = w − α_in·m, then m ← ρm + ∇CE(w'; b₂) and w ← w − β_out·m; also for personal models. Decay stays in the second
    step; that code has no decay.
    Deviation: the second derivative is left out (the paper's FO variant); the Hessian-free variant is not available.
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
    lookahead = Lookahead(inner_step, fresh_batch=True, momentum=carry_momentum)
    return replace(
        fedavg(),
        phases=(Phase(sgd=Sgd(lr=beta_out), lookahead=lookahead),),
        sums=tuple(_equally_weighted(payload) for payload in payloads.MODEL),
        own=Own(finetune=adapting, tuning={"ft": (adapting,)}),
    )
