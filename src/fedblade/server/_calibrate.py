"""Calibration of a classifier: in closed form on unit features, or on features drawn from one Gaussian per class."""

import torch
from torch import Tensor, nn

from fedblade.core.errors import NonFinite
from fedblade.core.method import InitView, Method
from fedblade.core.network import Network
from fedblade.core.one_client import receive, train_alone
from fedblade.core.plan import Batch, ClientTask
from fedblade.core.problem import LocalSettings, Problem
from fedblade.core.samples import Samples
from fedblade.core.state import ServerState
from fedblade.core.sums import Sums
from fedblade.core.tree import Tree
from fedblade.server._seed import server_generator

JITTER = 1e-6
"""Added to the diagonal of every covariance before features are drawn."""


def calibrate_sphere(state: ServerState, sums: Sums, *, ridge: float) -> ServerState:
    """Ridge solution W* = (Σ e_y uᵀ)(Σ u uᵀ + ridge·I)⁻¹ in float64, as the fixed `head.weight` [classes, dim].

    Reads the sums `unit_gram` (Σ u uᵀ) and `unit_class_sums` (Σ e_y uᵀ).
    """
    gram, cross, old = sums["unit_gram"]["gram"], sums["unit_class_sums"]["sum"], state.fixed["head.weight"]
    regularised = gram + ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    weight = torch.linalg.solve(regularised, cross.T).T.contiguous()
    return state.replace(fixed={**state.fixed, "head.weight": weight.to(old.dtype)})


def class_gaussian(moments: Tree, label: int) -> tuple[Tensor, Tensor]:
    """Mean [dim] and unbiased covariance [dim, dim] of a class with two samples or more, from `count`, Σz and Σzzᵀ."""
    count, total = moments["count"][label], moments["sum"][label]
    mean = total / count
    spread = moments["outer"][label] - torch.outer(total, mean)
    return mean, (spread + spread.mT) / 2 / (count - 1)


def virtual_features(moments: Tree, per_class: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Features [classes·per_class, dim] from N(μ_c, Σ_c + 1e-6·I) in float64, and their labels.

    Classes with fewer than two samples are left out.
    """
    labels = [label for label, count in enumerate(moments["count"].tolist()) if count > 1]
    dim = moments["sum"].shape[1]
    rows = [moments["sum"].new_zeros(0, dim)]
    for label in labels:
        mean, covariance = class_gaussian(moments, label)
        draws = torch.randn(per_class, dim, generator=generator, dtype=torch.float64).to(mean.device)
        rows.append(mean + draws @ _root(covariance).mT)
    return torch.cat(rows), torch.tensor(labels, dtype=torch.int64, device=rows[0].device).repeat_interleave(per_class)


def _root(covariance: Tensor) -> Tensor:
    """Cholesky factor of Σ + ε·I; if it fails because of rounding, ε grows tenfold, up to three times."""
    identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    for power in range(4):
        factor: Tensor
        factor, failed = torch.linalg.cholesky_ex(covariance + JITTER * 10**power * identity)
        if not failed:
            return factor
    raise NonFinite(
        "the covariance of a class's features is not positive, even with 0.001 added to its diagonal; the features "
        "are too large for float64. Lower the learning rate or add normalisation layers to the model."
    )


def calibrate_head(
    state: ServerState, sums: Sums, *, method: Method, samples_per_class: int, epochs: int, lr: float, batch_size: int
) -> ServerState:
    """Draw virtual features from the sum `moments` and train only the head on them, by plain SGD.

    `method` has the losses and one phase, which trains the head. Draws come from the server state `seed`.
    """
    generator = server_generator(state)
    features, labels = virtual_features(sums["moments"], samples_per_class, generator)
    if not len(labels):
        return state
    params = {name: leaf for name, leaf in state.params.items() if not name.startswith("body.")}
    problem = _problem(method, params, features, labels, num_classes=len(sums["moments"]["count"]))
    task = _task(labels, problem.network.num_classes, epochs, batch_size, generator)
    with torch.inference_mode(False), torch.enable_grad():
        model, _ = train_alone(problem, receive(problem, ServerState(params, {}, state.fixed), task, None, lr))
    return state.replace(params=state.params | model.params)


def _problem(method: Method, params: Tree, features: Tensor, labels: Tensor, num_classes: int) -> Problem:
    """The head as a network whose inputs are the features."""
    like, dim = next(iter(params.values())), features.shape[1]
    samples = Samples(features.to(like), labels, like.dtype, shift=like.new_zeros(()), scale=like.new_ones(()))
    network = Network(nn.Identity(), method.head, dim, num_classes)
    return Problem(method, network, samples, LocalSettings(), InitView(params, dim, num_classes, population=1))


def _task(labels: Tensor, num_classes: int, epochs: int, batch_size: int, generator: torch.Generator) -> ClientTask:
    """`epochs` epochs over all virtual features, shuffled again in each epoch."""
    orders = (torch.randperm(len(labels), generator=generator).to(labels.device) for _ in range(epochs))
    return ClientTask(
        client=0,
        round=0,
        num_samples=len(labels),
        counts=torch.bincount(labels, minlength=num_classes),
        weight=1.0,
        phases=(tuple(Batch(part, None) for order in orders for part in torch.split(order, batch_size)),),
        skipped_singletons=0,
        draw_indices=lambda: torch.arange(len(labels), device=labels.device),
    )
