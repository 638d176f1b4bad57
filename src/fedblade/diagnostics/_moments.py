"""Moments of a feature set: sums over samples from which every spectral and collapse diagnostic is finished.

They merge by addition, so they can be gathered batch by batch, client by client or machine by machine.
"""

from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree
from fedblade.core.views import StepView
from fedblade.heads import normalise

Space = Literal["feature", "projected", "direction"]
FLAT = 1e-12
"""A feature whose variance is below this share of its mean square is constant: less is rounding of the difference."""


@dataclass(frozen=True)
class Moments:
    """Float64 sums over samples, overall and per class.

    `count []`, `total [dim]` Σz and `outer [dim, dim]` Σzzᵀ over all; `class_count [classes]`,
    `class_total [classes, dim]` Σz and `class_unit [classes, dim]` Σz/‖z‖ by class.
    """

    count: Tensor
    total: Tensor
    outer: Tensor
    class_count: Tensor
    class_total: Tensor
    class_unit: Tensor

    @staticmethod
    def of(features: Tensor, labels: Tensor, num_classes: int, mask: Tensor | None = None) -> "Moments":
        """Moments of `features [batch, dim]`; rows whose mask is 0 do not count."""
        z = features.detach().to(torch.float64)
        real = torch.ones_like(z[:, 0]) if mask is None else (mask != 0).to(torch.float64)
        z = torch.where(real[:, None] != 0, z, 0.0)
        classes = torch.arange(num_classes, device=labels.device)
        members = (labels[:, None] == classes).to(torch.float64) * real[:, None]
        return Moments(real.sum(), z.sum(0), z.mT @ z, members.sum(0), members.mT @ z, members.mT @ normalise(z))

    @staticmethod
    def from_tree(tree: Tree) -> "Moments":
        """Moments from what a pass added up."""
        return Moments(**tree)

    def tree(self) -> Tree:
        """The sums by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __add__(self, other: "Moments") -> "Moments":
        mine, theirs = self.tree(), other.tree()
        return Moments(**{name: mine[name] + theirs[name] for name in mine})

    def covariance(self) -> Tensor:
        """Σ = (1/n)·Σ(z - z̄)(z - z̄)ᵀ [dim, dim]; NaN without samples."""
        mean = self.total / self.count
        covariance = self.outer / self.count - torch.outer(mean, mean)
        flat = covariance.diagonal() <= FLAT * self.outer.diagonal() / self.count
        return torch.where(flat[:, None] | flat, 0.0, covariance)

    def correlation(self) -> Tensor:
        """Covariance of the z-scored features; rows and columns of constant features are 0."""
        covariance = self.covariance()
        deviation = covariance.diagonal().sqrt()
        scale = torch.where(deviation > 0, 1 / deviation, 0.0)
        return covariance * torch.outer(scale, scale)


def moments_pass(space: Space) -> DataPass:
    """Gather the moments of the features, of the head's projection, or of the projection's direction."""
    return _PASSES[space]


def _of_features(view: StepView) -> Tree:
    return _of(view, view.features)


def _of_projected(view: StepView) -> Tree:
    return _of(view, view.output.projected)


def _of_direction(view: StepView) -> Tree:
    return _of(view, normalise(view.output.projected))


def _of(view: StepView, vectors: Tensor) -> Tree:
    return Moments.of(vectors, view.labels, view.logits.shape[-1], view.mask).tree()


_PASSES: dict[Space, DataPass] = {
    "feature": DataPass("moments_feature", _of_features),
    "projected": DataPass("moments_projected", _of_projected),
    "direction": DataPass("moments_direction", _of_direction),
}
