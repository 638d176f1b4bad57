"""CCVR: recalibrate the classifier with virtual features (Luo et al., NeurIPS 2021)."""

from dataclasses import replace
from functools import partial

import torch

from fedblade import payloads
from fedblade.core.errors import Misconfigured
from fedblade.core.method import Exchange, Method
from fedblade.core.phase import Phase
from fedblade.core.registry import methods
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import Tree
from fedblade.core.views import EndView, StepView
from fedblade.methods.fedavg import fedavg
from fedblade.server import calibrate_head, run_seed


def _class_moments(view: StepView) -> Tree:
    """Sample counts, Σz and Σzzᵀ per class over one batch: `outer [classes, dim, dim]`; padding does not count."""
    features = view.features.double()
    if view.mask is not None:
        features = torch.where(view.mask[:, None] != 0, features, 0.0)
    of_class = view.labels == torch.arange(view.counts.shape[0], device=features.device)[:, None]
    outer = torch.where(of_class[:, None, :], features.mT, 0.0) @ features
    return payloads.class_features(view) | {"outer": outer}


def _moments(view: EndView) -> Tree:
    return view.passes["class_moments"]


@methods.register(paper="arXiv:2106.05001", tune={"samples_per_class": (10, 50, 200)})
def ccvr(samples_per_class: int = 10, epochs: int = 100, lr: float = 0.01, batch_size: int = 128) -> Method:
    """Train as FedAvg, then retrain the classifier on features drawn from one Gaussian per class.

    Objective: CE. After the last round all clients send the moments of each class's features in the final model.
    Server: μ_c and the unbiased Σ_c of the pooled features, `samples_per_class` draws from N(μ_c, Σ_c + 1e-6·I), then
    SGD on CE, which trains only the head. Classes with fewer than two samples are left out.
    Clients send n, Σz and Σzzᵀ, which give the same Σ_c as their means and covariances. This takes C·d² numbers in
    float64 on the server and on a client: 21 MB for 10 classes and 512 features, 1.3 GB for 100 classes and 1280.
    Deviation: the authors' code uses standard deviations of single features as variances, and unweighted means.
    The code of FL-bench pools covariances that are biased (divided by n); here they are unbiased (n − 1).
    """
    for name, given in {"samples_per_class": samples_per_class, "epochs": epochs, "batch_size": batch_size}.items():
        if given < 1:
            raise Misconfigured(f"{name}={given!r}: expected 1 or more.")
    if not lr > 0:
        raise Misconfigured(f"lr={lr!r}: expected a rate above 0, such as 0.01.")
    base = fedavg()
    calibrate = partial(
        calibrate_head,
        method=replace(base, phases=(Phase(trains=("head",), epochs=epochs),)),
        samples_per_class=samples_per_class,
        epochs=epochs,
        lr=lr,
        batch_size=batch_size,
    )
    moments = Sum("moments", _moments, 1e9, passes=(DataPass("class_moments", _class_moments),), by_class=True)
    return replace(
        base,
        exchanges=(Exchange("after_run", (moments,), calibrate),),
        server_state={"seed": run_seed},
        broadcast=(),
    )
