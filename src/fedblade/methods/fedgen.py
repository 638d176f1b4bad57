"""FedGen: a generator of features, trained by the server, regularises clients (Zhu et al., ICML 2021)."""

from dataclasses import replace
from functools import partial
from typing import Literal

import torch

from fedblade.core.errors import Misconfigured
from fedblade.core.method import Exchange, InitView, Method
from fedblade.core.registry import methods
from fedblade.core.state import ServerState
from fedblade.core.sums import Sum, Sums
from fedblade.core.tree import Tree
from fedblade.core.views import EndView
from fedblade.losses import Generated, GeneratedMatch
from fedblade.methods.fedavg import fedavg
from fedblade.server import FeatureGenerator, GeneratorTraining, average, no_moments, run_seed


def _counts(view: EndView) -> Tree:
    return {"count": view.counts}


def _head(view: EndView) -> Tree:
    return {"weight": view.params["head.weight"], "bias": view.params["head.bias"], "counts": view.counts}


def _no_labels(view: InitView) -> Tree:
    device = next(iter(view.params.values())).device
    return {"present": torch.zeros(view.num_classes, dtype=torch.bool, device=device)}


def _keep_labels(state: ServerState, sums: Sums) -> ServerState:
    return state.replace(extra={**state.extra, "labels": {"present": sums["label_counts"]["count"] > 0}})


@methods.register(paper="arXiv:2105.10056")
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
) -> Method:
    """Train a generator of features on the server and let clients learn from it.

    Objective, from round 1 on (CE in round 0): L_k = CE + (B_gen/B)·α_t·CE(h(G(ỹ)), ỹ) + β_t·KL(h(G(y)) ‖ h(z)), with h
    the head, ỹ uniform over the labels present in the federation, α_t = max(1e-4, α_0·0.98^t), β_t alike, and
    B_gen/B = `gen_per_sample`. Server: `n_it` steps of Adam at the rate lr·0.98^t on
    α_s·Σ_k mean_i ω_{k,y_i} CE(h_k(G_i), y_i) + η_s·Div − β_s·KL(ensemble ‖ global) with ω_{k,y} = n_{k,y}/Σ_j n_{j,y};
    then the models are averaged.
    The server sees every client's classifier and class counts one by one: secure sums cannot carry this method. All
    clients report their class counts before the first round.
    """
    _check(nz=nz, hid=hid, gen_per_sample=gen_per_sample, n_it=n_it)
    if not (alpha_0 >= 0 and beta_0 >= 0 and lr > 0 and gen_batch >= 2):
        raise Misconfigured(
            f"alpha_0={alpha_0!r}, beta_0={beta_0!r}, lr={lr!r}, gen_batch={gen_batch!r}: expected strengths of 0 or "
            f"more, a rate above 0 and batches of 2 or more, which the generator's BatchNorm needs."
        )
    base = fedavg()
    if alpha_0 == beta_0 == 0:
        return base
    generator = FeatureGenerator(nz, hid, noise)
    generated = Generated(
        weight=gen_per_sample if alpha_0 else 0, strength=alpha_0, generate=generator, per_sample=gen_per_sample
    )
    match = GeneratedMatch(
        weight=1.0 if beta_0 else 0.0, strength=beta_0, generate=generator, per_sample=gen_per_sample
    )
    train_generator = GeneratorTraining(generator, alpha_s, eta_s, beta_s, n_it, gen_batch, lr)

    def server(state: ServerState, sums: Sums) -> ServerState:
        return average(train_generator(state, sums), sums)

    labels = Sum("label_counts", _counts, bound=1e9, by_class=True)
    return replace(
        base,
        losses=(*base.losses, generated, match),
        sums=(*base.sums, Sum("heads", _head, bound=1e6, reduce="each")),
        server=server,
        noise=generated.draws_per_sample,
        server_state={
            "generator": generator.init,
            "labels": _no_labels,
            "adam": partial(no_moments, generator),
            "seed": run_seed,
        },
        broadcast=("generator", "labels"),
        exchanges=(Exchange("before_run", (labels,), _keep_labels),),
    )


def _check(**at_least_one: int) -> None:
    for name, given in at_least_one.items():
        if given < 1:
            raise Misconfigured(f"{name}={given!r}: expected 1 or more.")
