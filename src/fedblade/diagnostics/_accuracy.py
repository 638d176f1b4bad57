"""Accuracy and loss on a test set."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from fedblade.core.fields import Field
from fedblade.core.metric import Metric, MetricResult
from fedblade.core.registry import metrics
from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree
from fedblade.core.views import StepView
from fedblade.diagnostics._batch import real_samples

_FIELDS = (
    Field(
        "test_accuracy",
        "Test accuracy",
        "test accuracy, %",
        "The share of the test samples that the model puts into the right class. Higher is better. A line that rises "
        "earlier needs fewer rounds of communication.",
        0.0,
        100.0,
        "test accuracy (%)",
        number_format=".2f",
    ),
    Field(
        "test_loss",
        "Test loss",
        "test loss",
        "The cross-entropy of the model's answers on the test samples. Lower is better. If the loss rises while the "
        "accuracy stays the same, the model gives wrong answers with more confidence. Compare methods that train with "
        "different losses by their accuracy.",
        low=0.0,
        short="test loss",
    ),
)


@metrics.register("accuracy")
def accuracy() -> Metric:
    """Share of samples whose largest logit is their class, in percent, and the mean cross-entropy of the logits."""
    return Metric((_PASS,), _finish, fields=_FIELDS)


def _batch_sums(view: StepView) -> Tree:
    logits, real = view.logits.detach().to(torch.float64), real_samples(view)
    labels = torch.where(real, view.labels, 0)
    losses = functional.cross_entropy(logits, labels, reduction="none")
    return {
        "count": real.sum().to(torch.float64),
        "correct": _sum(logits.argmax(-1) == labels, real),
        "loss": _sum(losses, real),
    }


def _sum(values: Tensor, real: Tensor) -> Tensor:
    return torch.where(real, values.to(torch.float64), 0.0).sum()


def _finish(totals: Mapping[str, Tree]) -> MetricResult:
    sums = totals[_PASS.name]
    return {
        "test_accuracy": float(100 * sums["correct"] / sums["count"]),
        "test_loss": float(sums["loss"] / sums["count"]),
    }


def num_samples(totals: Mapping[str, Tree]) -> int:
    """The number of samples in the totals of `accuracy`."""
    return int(totals[_PASS.name]["count"])


def _why_impossible(sums: Tree) -> str | None:
    """Why totals are impossible, or None. The loss of a diverged model may be NaN or infinite."""
    count, correct, loss = (float(sums[name]) for name in ("count", "correct", "loss"))
    if count < 1:
        return "the reported number of samples is below 1"
    if not 0 <= correct <= count or correct != int(correct):
        return f"the report counts {correct:g} of {count:g} samples as right"
    return f"the reported loss is {loss:g}, which is below zero" if loss < 0 else None


_PASS = DataPass("accuracy", _batch_sums, check=_why_impossible)
