"""Class means: where the classes lie in the features, and the cosines between them."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from fedblade.core.metric import Metric, MetricResult
from fedblade.core.registry import metrics
from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree
from fedblade.core.views import StepView
from fedblade.diagnostics._batch import as_lists, class_sums
from fedblade.heads import normalise

UNRESOLVED_MEANS = 1e-12
"""Distances from the centre below this share of the largest mean's length are rounding."""


def means_of_held(sums: Tree) -> Tensor:
    """Means [held, dim] of the classes with samples."""
    held = sums["count"] > 0
    return sums["sum"][held] / sums["count"][held][:, None]


def centred(means: Tensor) -> Tensor:
    """`means [classes, dim]` about their own mean; what is only rounding is a zero vector, without a direction."""
    about = means - means.mean(0)
    rounding = about.norm(dim=1) <= UNRESOLVED_MEANS * means.norm(dim=1).max()
    return torch.where(rounding[:, None], 0.0, about)


@metrics.register("class_means", paper="Papyan, Han and Donoho 2020")
def class_means() -> Metric:
    """Cosines between the class means of the features, centred on the mean of the class means.

    The array `class_cosines [classes, classes]` has no numbers for classes without samples and for those whose mean
    is the centre. On a simplex ETF it is 1 on the diagonal and -1/(classes - 1) elsewhere.
    """
    return Metric((_PASS,), _finish)


def _of(view: StepView) -> Tree:
    return class_sums(view, view.features)


def _finish(totals: Mapping[str, Tree]) -> MetricResult:
    sums = totals[_PASS.name]
    held = torch.nonzero(sums["count"] > 0).squeeze(1)
    cosines = sums["sum"].new_full((len(sums["count"]),) * 2, math.nan)
    if len(held):
        directions = normalise(centred(means_of_held(sums)))
        placed = directions.norm(dim=1) > 0
        known = torch.where(placed[:, None] & placed, directions @ directions.mT, math.nan)
        cosines[held[:, None], held] = known
    return {"class_cosines": as_lists(cosines)}


_PASS = DataPass("class_sums", _of)
