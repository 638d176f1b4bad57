"""Training of a feature generator on the server: its features should be diverse and fit the clients' classifiers."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.method import InitView
from fedblade.core.state import ServerState
from fedblade.core.sums import Sums
from fedblade.core.terms import check_weight
from fedblade.core.tree import Tree, tree_clone
from fedblade.server._generator import STATISTICS, FeatureGenerator
from fedblade.server._seed import server_generator

_BETAS, _EPS = (0.9, 0.999), 1e-8


def label_shares(counts: Tensor) -> Tensor:
    """ω_{k,c} = n_{k,c} / Σ_j n_{j,c} for `counts [clients, classes]`; a class that no client holds has shares 0."""
    return counts / counts.sum(0).clamp(min=1)


def diversity(codes: Tensor, made: Tensor) -> Tensor:
    """Penalty exp(−mean_{i,j} ‖ε_i − ε_j‖²/nz · ‖G_i − G_j‖₁/d): small if different codes give different features."""
    distances = (codes[:, None] - codes).square().mean(-1)
    return (-(distances * (made[:, None] - made).abs().mean(-1)).mean()).exp()


def no_moments(generator: FeatureGenerator, view: InitView) -> Tree:
    """Adam's state before the first step."""
    trained = {name: leaf for name, leaf in generator.init(view).items() if name not in STATISTICS}
    zeros = {f"{part}.{name}": torch.zeros_like(leaf) for part in ("first", "second") for name, leaf in trained.items()}
    return zeros | {"steps": torch.zeros((), dtype=torch.int64)}


def adam(tensors: Tree, gradient: Tree, moments: Tree, lr: float, weight_decay: float) -> tuple[Tree, Tree]:
    """One step of Adam with weight decay added to the gradient, as in PyTorch: the new tensors and moments."""
    steps = moments["steps"] + 1
    shrunk = [1 - beta ** int(steps) for beta in _BETAS]
    new, kept = dict(tensors), {"steps": steps}
    for name, leaf in gradient.items():
        total = leaf + weight_decay * tensors[name]
        first = _BETAS[0] * moments[f"first.{name}"] + (1 - _BETAS[0]) * total
        second = _BETAS[1] * moments[f"second.{name}"] + (1 - _BETAS[1]) * total.square()
        new[name] = tensors[name] - lr * (first / shrunk[0]) / ((second / shrunk[1]).sqrt() + _EPS)
        kept |= {f"first.{name}": first, f"second.{name}": second}
    return new, kept


@dataclass(frozen=True)
class GeneratorTraining:
    """A server step that trains the generator in the server state, see `loss`; the model does not change.

    Reads the sum `heads`, one entry per client: `weight`, `bias` and `counts`. Labels are uniform over the classes of
    which the cohort holds two samples or more; without such classes nothing changes.
    """

    generator: FeatureGenerator
    alpha_s: float
    eta_s: float
    beta_s: float
    n_it: int
    gen_batch: int
    lr: float
    weight_decay: float = 1e-2
    fade: float = 0.98

    def __post_init__(self) -> None:
        for name in ("alpha_s", "eta_s", "beta_s"):
            check_weight(name, getattr(self, name))
        if not (self.n_it >= 1 and self.gen_batch >= 2):
            raise Misconfigured(
                f"n_it={self.n_it!r}, gen_batch={self.gen_batch!r}: expected 1 step or more on batches of 2 or more, "
                f"which the generator's BatchNorm needs."
            )
        if not (0 < self.lr < math.inf and 0 <= self.weight_decay < math.inf):
            raise Misconfigured(
                f"lr={self.lr!r}, gen_weight_decay={self.weight_decay!r}: expected a rate above 0 and a decay from 0 "
                f"on, such as 3e-4 and 1e-2."
            )
        if not 0 < self.fade <= 1:
            raise Misconfigured(f"fade={self.fade!r}: expected a factor above 0 and up to 1, such as 0.98.")

    def __call__(self, state: ServerState, sums: Sums) -> ServerState:
        """`n_it` steps of Adam at rate lr·fade^round."""
        tensors, moments = tree_clone(state.extra["generator"]), dict(state.extra["adam"])
        like, draws = tensors["in.weight"], server_generator(state)
        heads = {name: leaf.to(like) for name, leaf in sums["heads"].items()}
        offered = (sums["heads"]["counts"].sum(0) > 1).nonzero().flatten().cpu()
        for _ in range(self.n_it if len(offered) else 0):
            labels = offered[torch.randint(len(offered), (self.gen_batch,), generator=draws)].to(like.device)
            noise = torch.rand(self.gen_batch, self.generator.nz, generator=draws, dtype=torch.float64)
            gradient, statistics = self._gradient(tensors, heads, state.params, labels, noise)
            tensors, moments = adam(tensors, gradient, moments, self.lr * self.fade**state.round, self.weight_decay)
            tensors |= statistics
        return state.replace(extra={**state.extra, "generator": tensors, "adam": moments})

    def _gradient(self, tensors: Tree, heads: Tree, student: Tree, labels: Tensor, noise: Tensor) -> tuple[Tree, Tree]:
        """Gradient of the loss on one batch, and the updated statistics."""
        with torch.inference_mode(False), torch.enable_grad():
            leaves = {n: v.detach().clone().requires_grad_() for n, v in tensors.items() if n not in STATISTICS}
            codes = self.generator.codes(noise).to(tensors["in.weight"])
            made, statistics = self.generator.in_training(tensors | leaves, labels, codes)
            value = self.loss(made, codes, labels, heads, student)
            gradients = torch.autograd.grad(value, list(leaves.values()))
        return dict(zip(leaves, gradients, strict=True)), statistics

    def loss(self, made: Tensor, codes: Tensor, labels: Tensor, heads: Tree, student: Tree) -> Tensor:
        """α_s·Σ_k mean_i ω_{k,y_i} CE(h_k(G_i), y_i) + η_s·Div − β_s·mean_i KL(Σ_k ω_{k,y_i} h_k(G_i) ‖ h(G_i)).

        h_k are the clients' classifiers, h is the classifier of the global model before this round's average (FedGen,
        the generator's objective).
        Deviation: the paper has one cross-entropy of the averaged logits; this sum over clients, Div and the last part
        are from the authors' code.
        """
        logits = made @ heads["weight"].mT + heads["bias"][:, None]
        shares = label_shares(heads["counts"])[:, labels]
        picked = labels[None, :, None].expand(len(logits), -1, 1)
        errors = -logits.log_softmax(-1).gather(-1, picked).squeeze(-1)
        value = self.alpha_s * (shares * errors).sum(0).mean() + self.eta_s * diversity(codes, made)
        if self.beta_s == 0:
            return value
        ensemble = (shares[..., None] * logits).sum(0).log_softmax(-1)
        single = (made @ student["head.weight"].mT + student["head.bias"]).log_softmax(-1)
        return value - self.beta_s * (ensemble.exp() * (ensemble - single)).sum(-1).mean()
