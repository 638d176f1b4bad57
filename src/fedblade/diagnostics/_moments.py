"""Moments of features: sums over samples from which all spectral and collapse diagnostics are computed.

Moments are merged by addition, over batches, clients or machines. Squares are summed around the mean of their batch,
because Σzzᵀ - n·z̄z̄ᵀ would lose all digits far from the origin; so a single batch is exact at any offset. Over several
batches the covariance between batch means is still such a difference, because the batches know no common point near
the features. Its error is about 2e-15·offset²: with an offset of 1e3 deviations the variance is accurate to 1e-8, with
1e5 to 1e-4. Beyond that, the covariance between batches cannot be resolved and is left out: from 3e6/sqrt(batch)
deviations on in shuffled data, where a share 1/batch of the variance is lost, and from 3e6 on in data sorted by class,
where most of the variance can be lost.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass, fields
from operator import is_not
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree
from fedblade.core.views import StepView
from fedblade.diagnostics._batch import sums_by_class
from fedblade.diagnostics._checks import check_features, check_row_entries
from fedblade.heads import normalise

Space = Literal["feature", "projected", "direction"]
UNRESOLVED = 1e-13
"""Batch means are taken as equal if their variance is below this share of their mean square: it is only rounding."""


class _Known(NamedTuple):
    """A covariance, and what it was computed from beside the scatter: the other sums, and the state of all."""

    others: tuple[Tensor, ...]
    versions: list[int]
    covariance: Tensor


_COVARIANCES: MutableMapping[Tensor, _Known] = WeakTensorKeyDictionary()
"""Covariances by the tensor `Moments.scatter`, as long as it lives."""


@dataclass(frozen=True)
class Moments:
    """Float64 sums over samples, overall and per class.

    `count []`, `total [dim]` Σz, `scatter [dim, dim]` Σ(z - m)(z - m)ᵀ and `outer [dim, dim]` Σmmᵀ over all samples,
    with m the mean of the sample's batch; `class_count [classes]`, `class_total [classes, dim]` Σz and
    `class_unit [classes, dim]` Σz/‖z‖ by class.
    """

    count: Tensor
    total: Tensor
    scatter: Tensor
    outer: Tensor
    class_count: Tensor
    class_total: Tensor
    class_unit: Tensor

    @staticmethod
    def of(features: Tensor, labels: Tensor, num_classes: int, mask: Tensor | None = None) -> "Moments":
        """Moments of `features [batch, dim]`; rows with mask 0 do not count."""
        check_features(features)
        check_row_entries("labels", labels, features)
        if mask is not None:
            check_row_entries("mask", mask, features)
        real = torch.ones_like(labels, dtype=torch.bool) if mask is None else mask != 0
        z = features.detach().to(torch.float64)
        if mask is not None:
            z = torch.where(real[:, None], z, 0.0)
        mean, centred = _centre(z, None if mask is None else real, torch.finfo(features.dtype).eps)
        class_count, class_total, class_unit = sums_by_class(labels, num_classes, real, z, normalise(z))
        count = real.sum().to(torch.float64)
        return Moments(
            count=count,
            total=count * mean,
            scatter=centred.mT @ centred,
            outer=torch.outer(count * mean, mean),
            class_count=class_count,
            class_total=class_total,
            class_unit=class_unit,
        )

    @staticmethod
    def from_tree(tree: Tree) -> "Moments":
        """Moments from the sums of a pass."""
        return Moments(**tree)

    def tree(self) -> Tree:
        """The sums by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __add__(self, other: "Moments") -> "Moments":
        added = other.tree()
        return Moments(**{name: leaf + added[name] for name, leaf in self.tree().items()})

    def covariance(self) -> Tensor:
        """Σ = (1/n)·Σ(z - z̄)(z - z̄)ᵀ [dim, dim]; NaN without samples.

        Many metrics need it: it is the same tensor until the sums change, and must not be changed.
        """
        sums = (self.count, self.total, self.outer, self.scatter)
        if any(leaf.is_inference() for leaf in sums):
            return self._covariance()
        others, versions = sums[:-1], [leaf._version for leaf in sums]
        known = _COVARIANCES.get(self.scatter)
        if known is None or known.versions != versions or any(map(is_not, known.others, others)):
            known = _COVARIANCES[self.scatter] = _Known(others, versions, self._covariance())
        return known.covariance

    def _covariance(self) -> Tensor:
        mean, covariance = self.total / self.count, self.outer / self.count
        square = covariance.diagonal().clone()
        # In place, because matrices of wide features have many megabytes.
        covariance -= torch.outer(mean, mean)
        equal = covariance.diagonal() <= UNRESOLVED * square
        covariance[equal] = 0.0
        covariance[:, equal] = 0.0
        covariance += self.scatter / self.count
        return covariance

    def variances(self) -> Tensor:
        """The diagonal of the covariance, [dim]."""
        mean, square = self.total / self.count, self.outer.diagonal() / self.count
        between = square - mean.square()
        equal = between <= UNRESOLVED * square
        return self.scatter.diagonal() / self.count + torch.where(equal, 0.0, between)

    def correlation(self) -> Tensor:
        """Covariance of the z-scored features; rows and columns of constant features are 0."""
        covariance = self.covariance()
        deviation = covariance.diagonal().sqrt()
        scale = torch.where(deviation > 0, 1 / deviation, 0.0)
        return covariance * torch.outer(scale, scale)


def _centre(z: Tensor, real: Tensor | None, resolution: float) -> tuple[Tensor, Tensor]:
    """Mean of the real rows (None: all), and the rows minus this mean; a constant feature becomes exactly 0.

    So does a feature that varies only in the last digit of its original dtype, whose `resolution` is given.
    """
    if real is None:
        count: int | Tensor = max(1, len(z))
        first = z[:1].sum(0)
        shifted = z - first
    else:
        count = real.sum().clamp(min=1)
        first = torch.where((real & (real.cumsum(0) == 1))[:, None], z, 0.0).sum(0)
        shifted = torch.where(real[:, None], z - first, 0.0)
    step = shifted.sum(0) / count
    mean, centred = first + step, shifted - step
    if real is not None:
        centred = torch.where(real[:, None], centred, 0.0)
    constant = centred.square().sum(0) <= count * (resolution * mean).square()
    return mean, torch.where(constant, 0.0, centred)


def moments_pass(space: Space) -> DataPass:
    """The pass for the moments of the features, of the head's projection, or of the projection's direction."""
    return _PASSES[space]


def _batch_moments(view: StepView, vectors: Tensor) -> Tree:
    return Moments.of(vectors, view.labels, view.logits.shape[-1], view.mask).tree()


_PASSES: dict[Space, DataPass] = {
    "feature": DataPass("moments_feature", lambda view: _batch_moments(view, view.features)),
    "projected": DataPass("moments_projected", lambda view: _batch_moments(view, view.output.projected)),
    "direction": DataPass("moments_direction", lambda view: _batch_moments(view, normalise(view.output.projected))),
}
