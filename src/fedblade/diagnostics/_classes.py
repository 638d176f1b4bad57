"""Accuracy by class, and which classes are taken for which."""

import math
from collections.abc import Mapping

from fedblade.core.metric import Found, Metric
from fedblade.core.registry import metrics
from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree
from fedblade.core.views import StepView
from fedblade.diagnostics._batch import as_lists, members, real_samples


@metrics.register("classes")
def classes() -> Metric:
    """Accuracy of each class in percent, the worst of them, and the confusion matrix of the largest logits.

    `confusion[y][c]` counts samples of class y whose largest logit is c. `class_accuracy` is None for classes without
    samples; they are left out of `worst_class_accuracy`, which is NaN where there is no sample at all.
    """
    return Metric((_PASS,), _finish)


def _of(view: StepView) -> Tree:
    num_classes, real = view.logits.shape[-1], real_samples(view)
    predicted = members(view.logits.argmax(-1), num_classes, real)
    return {"confusion": members(view.labels, num_classes, real).mT @ predicted}


def _finish(totals: Mapping[str, Tree]) -> Found:
    confusion = totals[_PASS.name]["confusion"]
    accuracy = as_lists(100 * confusion.diagonal() / confusion.sum(1))
    return {
        "worst_class_accuracy": min((each for each in accuracy if each is not None), default=math.nan),
        "class_accuracy": accuracy,
        "confusion": confusion.long().tolist(),
    }


_PASS = DataPass("confusion", _of)
