"""Accuracy and loss on a test set."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from fedblade.core.metric import Metric
from fedblade.core.registry import metrics
from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree
from fedblade.core.views import StepView


@metrics.register("accuracy")
def accuracy() -> Metric:
    """Share of samples whose largest logit is their class, in percent, and the mean cross-entropy of the logits."""
    return Metric((_PASS,), _finish)


def _of(view: StepView) -> Tree:
    logits = view.logits.detach().to(torch.float64)
    real = torch.ones_like(logits[:, 0]) if view.mask is None else (view.mask != 0).to(torch.float64)
    labels = torch.where(real != 0, view.labels, 0)
    losses = functional.cross_entropy(logits, labels, reduction="none")
    return {
        "count": real.sum(),
        "correct": _sum(logits.argmax(-1) == labels, real),
        "loss": _sum(losses, real),
    }


def _sum(values: Tensor, real: Tensor) -> Tensor:
    return torch.where(real != 0, values.to(torch.float64), 0.0).sum()


def _finish(totals: Mapping[str, Tree]) -> dict[str, float]:
    sums = totals[_PASS.name]
    return {
        "test_accuracy": float(100 * sums["correct"] / sums["count"]),
        "test_loss": float(sums["loss"] / sums["count"]),
    }


_PASS = DataPass("accuracy", _of)
