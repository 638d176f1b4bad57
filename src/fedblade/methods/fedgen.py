"""FedGen: a generator of features, trained by the server, regularises clients (Zhu et al., ICML 2021)."""

from dataclasses import replace
from functools import partial
from typing import Literal

import torch

from fedblade import payloads
from fedblade.core.errors import Misconfigured
from fedblade.core.method import Exchange, InitView, Method
from fedblade.core.registry import methods
from fedblade.core.state import ServerState
from fedblade.core.sums import Sent, Sum, Sums
from fedblade.core.terms import check_weight
from fedblade.core.tree import Tree
from fedblade.core.views import EndView
from fedblade.losses import Generated, GeneratedMatch
from fedblade.methods.fedavg import fedavg
from fedblade.server import FeatureGenerator, GeneratorTraining, no_moments, run_seed


def _counts(view: EndView) -> Tree:
    return {"count": view.counts}


def _head(view: EndView) -> Tree:
    return {"weight": view.params["head.weight"], "bias": view.params["head.bias"], "counts": view.counts}


def _implied_head(sent: Sent) -> Tree:
    """The head as the client received it, changed as the client's update says, and the client's class counts."""
    delta = sent.sums[payloads.delta.name]
    changes = {leaf: delta[f"head.{leaf}"] / sent.weight for leaf in ("weight", "bias")}
    head = {leaf: sent.anchor[f"head.{leaf}"].to(change) + change for leaf, change in changes.items()}
    return {**head, "counts": sent.counts}


def _no_labels(view: InitView) -> Tree:
    device = next(iter(view.params.values())).device
    return {"present": torch.zeros(view.num_classes, dtype=torch.bool, device=device)}


def _keep_labels(state: ServerState, sums: Sums) -> ServerState:
    return state.replace(extra={**state.extra, "labels": {"present": sums["label_counts"]["count"] > 0}})


def _terms(
    generator: FeatureGenerator, alpha_0: float, beta_0: float, per_sample: int, fade: float
) -> tuple[Generated, GeneratedMatch]:
    """The clients' terms; a term with initial strength 0 has weight 0, which leaves it out."""
    return (
        Generated(
            weight=per_sample if alpha_0 else 0,
            strength=alpha_0,
            fade=fade,
            generate=generator,
            per_sample=per_sample,
        ),
        GeneratedMatch(
            weight=1.0 if beta_0 else 0.0, strength=beta_0, fade=fade, generate=generator, per_sample=per_sample
        ),
    )


def _guided(base: Method, terms: tuple[Generated, GeneratedMatch], train_generator: GeneratorTraining) -> Method:
    """The method whose server trains the generator before its step, and whose clients have `terms` in addition."""
    generator = train_generator.generator

    def server(state: ServerState, sums: Sums) -> ServerState:
        return base.server(train_generator(state, sums), sums)

    labels = Sum("label_counts", _counts, bound=1e9, by_class=True)
    return replace(
        base,
        losses=(*base.losses, *terms),
        sums=(*base.sums, Sum("heads", _head, bound=1e6, reduce="each", implied=_implied_head)),
        server=server,
        noise=terms[0].draws_per_sample,
        server_state={
            "generator": generator.init,
            "labels": _no_labels,
            "adam": partial(no_moments, generator),
            "seed": run_seed,
        },
        broadcast=("generator", "labels"),
        exchanges=(Exchange("before_run", (labels,), _keep_labels),),
    )


@methods.register(paper="arXiv:2105.10056", tune={"alpha_0": (1.0, 10.0), "beta_0": (1.0, 10.0)})
def fedgen(
    alpha_0: float = 10.0,
    beta_0: float = 10.0,
    alpha_s: float = 1.0,
    eta_s: float = 1.0,
    beta_s: float = 0.0,
    nz: int = 64,
    hid: int = 512,
    gen_per_sample: int = 1,
    noise: Literal["uniform", "normal"] = "uniform",
    n_it: int = 50,
    gen_batch: int = 32,
    lr: float = 3e-4,
    gen_weight_decay: float = 1e-2,
    fade: float = 0.98,
) -> Method:
    """Train a generator of features on the server and let clients learn from it.

    Objective, from round 1 on (CE in round 0): L_k = CE + (B_gen/B)·α_t·CE(h(G(ỹ)), ỹ) + β_t·KL(h(G(y)) ‖ h(z)), with h
    the head, ỹ uniform over the labels present in the federation, α_t = max(1e-4, α_0·`fade`^t), β_t alike, and
    B_gen/B = `gen_per_sample`. Server: `n_it` steps of Adam at the rate lr·`fade`^t on
    α_s·Σ_k mean_i ω_{k,y_i} CE(h_k(G_i), y_i) + η_s·Div − β_s·KL(ensemble ‖ global) with ω_{k,y} = n_{k,y}/Σ_j n_{j,y};
    then the models are averaged.
    The server sees every client's classifier and class counts one by one, so this method cannot use secure sums. All
    clients report their class counts before the first round.
    Deviation: the authors' code multiplies the losses [B] by the weights ω [B, 1] and takes the mean of all B²
    products, so each loss gets the mean weight of the batch; here each loss has the weight of its label.
    """
    check_weight("alpha_0", alpha_0)
    check_weight("beta_0", beta_0)
    if gen_per_sample < 1:
        raise Misconfigured(f"gen_per_sample={gen_per_sample!r}: expected 1 or more.")
    generator = FeatureGenerator(nz, hid, noise)
    training = GeneratorTraining(generator, alpha_s, eta_s, beta_s, n_it, gen_batch, lr, gen_weight_decay, fade)
    terms = _terms(generator, alpha_0, beta_0, gen_per_sample, fade)
    return fedavg() if alpha_0 == beta_0 == 0 else _guided(fedavg(), terms, training)
