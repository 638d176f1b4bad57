"""Accuracy by class, and the confusion matrix."""

import math
from collections.abc import Mapping

from torch import Tensor

from fedblade.core.fields import Field
from fedblade.core.metric import Metric, MetricResult
from fedblade.core.registry import metrics
from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree
from fedblade.core.views import StepView
from fedblade.diagnostics._batch import as_lists, members, real_samples, sums_by_class
from fedblade.diagnostics._pooled import block_members, block_size, pooled_table


def _percent_field(name: str, label: str, short: str, reading: str) -> Field:
    return Field(name, label, "accuracy, %", reading, 0.0, 100.0, short, number_format=".1f")


_FIELDS = (
    _percent_field(
        "worst_class_accuracy",
        "The worst class over rounds",
        "accuracy, worst class (%)",
        "Test accuracy of the class with the lowest accuracy, in each round. At 0 the model never gets a class right.",
    ),
    _percent_field(
        "worst_decile_accuracy",
        "The worst tenth of the clients",
        "accuracy, worst tenth of clients (%)",
        "Mean accuracy of the tenth of the clients with the lowest accuracies. Higher is fairer. Estimated from the "
        "accuracies by class, weighted by the client's labels.",
    ),
    _percent_field(
        "client_accuracy_mean",
        "Mean accuracy over clients",
        "accuracy, mean over clients (%)",
        "The mean over clients, each with the same weight. Estimated from the accuracies by class, weighted by the "
        "client's labels.",
    ),
)
"""The run computes the two accuracies over clients, from `class_accuracy` and the clients' labels."""


@metrics.register("classes")
def classes() -> Metric:
    """Accuracy of each class in percent, the lowest of them, and the confusion matrix of the largest logits.

    `confusion[y][c]` counts samples of class y whose largest logit is c. With more than 200 classes `confusion_pooled`
    takes its place: `values` are the counts by block of neighbouring classes, and `block` is the number of classes in a
    block. `class_accuracy` is None for classes without samples; they are left out of `worst_class_accuracy`, which is
    NaN without samples.
    """
    return Metric((_PASS,), _finish, fields=_FIELDS)


def _batch_sums(view: StepView) -> Tree:
    num_classes, real, predicted = view.logits.shape[-1], real_samples(view), view.logits.argmax(-1)
    if block_size(num_classes) == 1:
        return {"confusion": members(view.labels, num_classes, real).mT @ members(predicted, num_classes, real)}
    count, correct = (
        sums_by_class(view.labels, num_classes, counted)[0] for counted in (real, real & (predicted == view.labels))
    )
    pooled = block_members(view.labels, num_classes, real).mT @ block_members(predicted, num_classes, real)
    return {"count": count, "correct": correct, "pooled": pooled}


def _finish(totals: Mapping[str, Tree]) -> MetricResult:
    sums = totals[_PASS.name]
    if "confusion" in sums:
        confusion = sums["confusion"]
        return _of_classes(confusion.diagonal(), confusion.sum(1)) | {"confusion": confusion.long().tolist()}
    number = len(sums["count"])
    pooled = pooled_table(sums["pooled"].long(), number, block_size(number))
    return _of_classes(sums["correct"], sums["count"]) | {"confusion_pooled": pooled}


def _of_classes(correct: Tensor, count: Tensor) -> MetricResult:
    """Accuracies from right answers and samples by class."""
    accuracy = as_lists(100 * correct / count)
    worst = min((percent for percent in accuracy if percent is not None), default=math.nan)
    return {"worst_class_accuracy": worst, "class_accuracy": accuracy}


_PASS = DataPass("confusion", _batch_sums)
