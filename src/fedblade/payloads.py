"""Common payloads: the model's change, its statistics, its weight, and class sums."""

from typing import Literal

import torch

from fedblade.core.sums import DataPass, Sum, own_weight
from fedblade.core.tree import Tree, tree_select
from fedblade.core.views import EndView, StepView


def _delta(view: EndView) -> Tree:
    """a_k·(w_k − w) for the parameters that travel."""
    return {
        name: view.weight * (leaf.double() - view.anchor[name].double())
        for name, leaf in view.params.items()
        if name in view.shared
    }


def _buffers(view: EndView) -> Tree:
    """a_k·(running mean, running variance)."""
    return {name: view.weight * leaf.double() for name, leaf in _travelling(view).items() if leaf.is_floating_point()}


def _counters(view: EndView) -> Tree:
    return {name: leaf for name, leaf in _travelling(view).items() if not leaf.is_floating_point()}


def _travelling(view: EndView) -> Tree:
    return tree_select(view.buffers, view.shared)


delta = Sum("delta", _delta, bound=1e3)
buffers = Sum("buffers", _buffers, bound=1e6)
counters = Sum("counters", _counters, bound=2.0**31, reduce="max")
weight = Sum("weight", own_weight, bound=1e6)

MODEL: tuple[Sum, ...] = (delta, buffers, counters, weight)
"""What every method with averaged weights and statistics sends."""


def class_features(view: StepView) -> Tree:
    """Σ z and sample counts per class over one batch: `sum [classes, dim]`, `count [classes]`.

    Samples with mask 0 do not count, whatever their features and labels are.
    """
    num_classes, features, labels = view.counts.shape[0], view.features.double(), view.labels
    present = torch.ones_like(labels, dtype=torch.float64)
    if view.mask is not None:
        real = view.mask != 0
        features, labels = torch.where(real[:, None], features, 0.0), torch.where(real, labels, 0)
        present = real.double()
    sums = torch.zeros(num_classes, features.shape[1], dtype=torch.float64, device=features.device)
    counts = torch.zeros(num_classes, dtype=torch.float64, device=features.device)
    return {"sum": sums.index_add(0, labels, features), "count": counts.index_add(0, labels, present)}


CLASS_FEATURES = DataPass("class_features", class_features)
AUGMENTED_CLASS_FEATURES = DataPass("augmented_class_features", class_features, augmented=True)


def prototype_sum(weight: Literal["count", "uniform"] = "count", transform: Literal["eval", "train"] = "eval") -> Sum:
    """The sum `prototypes`: class sums and counts of the features, whose quotient is the mean over the cohort.

    With `uniform` every client that holds a class counts once. With `train` the inputs are augmented as in training.
    """
    source = AUGMENTED_CLASS_FEATURES if transform == "train" else CLASS_FEATURES

    def class_sums(view: EndView) -> Tree:
        total = view.passes[source.name]
        if weight == "count":
            return total
        holds = total["count"].clamp(max=1.0)
        return {"sum": total["sum"] / total["count"].clamp(min=1.0)[:, None], "count": holds}

    return Sum("prototypes", class_sums, bound=1e9, passes=(source,), by_class=True)
