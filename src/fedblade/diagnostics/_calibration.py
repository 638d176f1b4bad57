"""Calibration: whether the confidence of the model is the share of its right predictions."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.fields import Field
from fedblade.core.metric import Metric, MetricResult
from fedblade.core.registry import metrics
from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree
from fedblade.core.views import StepView
from fedblade.diagnostics._batch import as_lists, members, real_samples
from fedblade.diagnostics._checks import check_class_numbers, check_row_entries

NUM_BINS = 15


def expected_calibration_error(logits: Tensor, labels: Tensor) -> float:
    """Mean gap between confidence and accuracy of `logits [samples, classes]` (Guo et al. 2017, Eq. 3).

    ECE = Σ_b (n_b/n)·|accuracy_b - confidence_b|, a share between 0 and 1. A sample's confidence is the largest of its
    softmax probabilities; bin b of 15 holds confidences in ((b - 1)/15, b/15].
    """
    if logits.dim() != 2 or not logits.is_floating_point() or not logits.numel():
        raise Misconfigured(
            f"logits of shape {tuple(logits.shape)} and dtype {logits.dtype} given; floating point [samples, classes] "
            f"of at least 1 sample expected. Pass the scores of all classes, one row for each sample."
        )
    check_row_entries("labels", labels, logits)
    check_class_numbers(labels)
    if (highest := int(labels.max())) >= logits.shape[1]:
        raise Misconfigured(
            f"label {highest} given with logits of {logits.shape[1]} classes; at most {logits.shape[1] - 1} expected. "
            f"Pass the logits of every class."
        )
    return _error(_sums(logits, labels, torch.ones_like(labels, dtype=torch.bool)))


_ECE = Field(
    "ece",
    "Calibration error over rounds",
    "ECE",
    "The mean gap between how sure the model is and how often it is right (expected calibration error, a share). Lower "
    "is better.",
    short="calibration error (ECE)",
    number_format=".3f",
)


@metrics.register("calibration", paper="Guo et al. 2017")
def calibration() -> Metric:
    """Expected calibration error `ece`, a share between 0 and 1, and the reliability diagram it comes from.

    `calibration` has the mean `confidence`, the `accuracy` (both shares, None in empty bins) and the `count` of samples
    of each of 15 bins of confidence. Probabilities are the softmax of the logits. For a head with cosines, logits are
    the cosines times the scale, so a small scale makes the model look unsure.
    """
    return Metric((_PASS,), _finish, fields=(_ECE,))


def _batch_sums(view: StepView) -> Tree:
    return _sums(view.logits, view.labels, real_samples(view))


def _sums(logits: Tensor, labels: Tensor, real: Tensor) -> Tree:
    """For each bin: samples, summed confidences and right predictions, [15] each."""
    confidence, predicted = torch.where(real[:, None], logits.detach().double(), 0.0).softmax(-1).max(-1)
    bins = members((confidence * NUM_BINS).ceil().long() - 1, NUM_BINS, real)
    right = (predicted == labels).double()
    return {"count": bins.sum(0), "confidence": confidence @ bins, "correct": right @ bins}


def _error(sums: Tree) -> float:
    return float((sums["correct"] - sums["confidence"]).abs().sum() / sums["count"].sum())


def _finish(totals: Mapping[str, Tree]) -> MetricResult:
    sums = totals[_PASS.name]
    return {
        "ece": _error(sums),
        "calibration": {
            "confidence": as_lists(sums["confidence"] / sums["count"]),
            "accuracy": as_lists(sums["correct"] / sums["count"]),
            "count": sums["count"].long().tolist(),
        },
    }


_PASS = DataPass("calibration", _batch_sums)
