"""Class means of the features, and the cosines between them."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from fedblade.core.metric import Metric, MetricResult
from fedblade.core.registry import metrics
from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree
from fedblade.diagnostics._batch import as_lists, class_sums
from fedblade.diagnostics._pooled import block_size, mean_cosines, pooled_table
from fedblade.heads import normalise

UNRESOLVED_MEANS = 1e-12
"""A distance from the centre below this share of the longest class mean is only rounding."""


def means_of_present(sums: Tree) -> Tensor:
    """Means [present, dim] of the classes with samples."""
    present = sums["count"] > 0
    return sums["sum"][present] / sums["count"][present][:, None]


def centred(means: Tensor) -> Tensor:
    """`means [classes, dim]` minus their mean; a vector that is only rounding becomes 0, without a direction."""
    offsets = means - means.mean(0)
    rounding = offsets.norm(dim=1) <= UNRESOLVED_MEANS * means.norm(dim=1).max()
    return torch.where(rounding[:, None], 0.0, offsets)


@metrics.register("class_means", paper="Papyan, Han and Donoho 2020")
def class_means() -> Metric:
    """Cosines between the class means of the features, centred on the mean of the class means.

    The array `class_cosines [classes, classes]` has None for classes without samples and for classes whose mean is the
    centre. For a simplex ETF it is 1 on the diagonal and -1/(classes - 1) elsewhere. With more than 200 classes
    `class_cosines_pooled` takes its place: `values` are means over pairs of different classes, by block of neighbouring
    classes, and `block` is the number of classes in a block.
    """
    return Metric((_PASS,), _finish)


def _finish(totals: Mapping[str, Tree]) -> MetricResult:
    sums = totals[_PASS.name]
    directions = _directions(sums)
    number, size = len(directions), block_size(len(directions))
    if size > 1:
        return {"class_cosines_pooled": pooled_table(mean_cosines(directions), number, size)}
    defined = directions.norm(dim=1) > 0
    return {"class_cosines": as_lists(torch.where(defined[:, None] & defined, directions @ directions.mT, math.nan))}


def _directions(sums: Tree) -> Tensor:
    """Unit vectors [classes, dim] from the centre to the class means; 0 for classes without one."""
    directions = torch.zeros_like(sums["sum"])
    present = sums["count"] > 0
    if bool(present.any()):
        directions[present] = normalise(centred(means_of_present(sums)))
    return directions


_PASS = DataPass("class_sums", lambda view: class_sums(view, view.features))
