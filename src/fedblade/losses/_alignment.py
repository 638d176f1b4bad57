"""Alignment: features with the global prototypes of their classes, and prototypes with their class vectors."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView
from fedblade.heads import cosine, is_signs, normalise, own_cosines
from fedblade.losses._balanced_cross_entropy import log_counts
from fedblade.losses._checks import check_choice, check_floor, check_positive
from fedblade.losses._cross_entropy import cross_entropy
from fedblade.losses._masking import real_rows
from fedblade.losses._shapes import check_counts, check_etf, check_labels, check_mask, check_matrix, check_shape

Reduction = Literal["sum", "mean"]


def feature_alignment(
    features: Tensor,
    labels: Tensor,
    prototypes: Tensor,
    counts: Tensor,
    tau: float = 0.1,
    mask: Tensor | None = None,
    floor: float = 1,
    *,
    sample_mask: Tensor | None = None,
) -> Tensor:
    """Balanced cross-entropy of cos(z, p_c)/τ over the classes that have a prototype (FedBlade, Eq. 16).

    `features [batch, dim]`, `prototypes [classes, dim]` p, constants of the loss, `counts [classes]`, the weights of
    the softmax as in `balanced_cross_entropy`, `mask [classes]` says which classes have a prototype (None: all), and
    `sample_mask [batch]` which samples are real. Samples whose class is not in the softmax are left out of the mean;
    an empty mean is 0 with zero gradient.

    Deviation: the paper's sum has all classes and does not say what happens before a class has a prototype.
    """
    check_floor(floor)
    check_positive("tau", tau, 0.1)
    _check_tensors(features, labels, prototypes, counts, mask, sample_mask)
    has = torch.ones_like(counts, dtype=torch.bool) if mask is None else mask != 0
    allowed = has & (counts > 0) if floor == 0 else has
    safe_labels = real_rows(labels, sample_mask)
    used = allowed[safe_labels] if sample_mask is None else allowed[safe_labels] & (sample_mask != 0)
    points = torch.where(has[:, None], prototypes.detach(), torch.zeros_like(prototypes))
    cosines = normalise(real_rows(features, sample_mask)) @ normalise(points).mT
    logits = cosines / tau + torch.where(allowed, log_counts(counts, floor, features.dtype), -torch.inf)
    return cross_entropy(logits, safe_labels, mask=used)


def _check_tensors(
    features: Tensor,
    labels: Tensor,
    prototypes: Tensor,
    counts: Tensor,
    mask: Tensor | None,
    sample_mask: Tensor | None,
) -> None:
    check_matrix("features", features)
    check_labels(labels, features)
    check_matrix("prototypes", prototypes, "[classes, dim]")
    shape = (prototypes.shape[0], features.shape[1])
    check_shape("prototypes", prototypes, shape, "Take them from the layer of the features, one row per class.")
    check_counts(counts, shape[0])
    check_mask(mask, prototypes)
    check_mask(sample_mask, features, "sample_mask")


@losses.register("feature_alignment", paper="FedBlade, Eq. 16")
@dataclass(frozen=True, kw_only=True)
class FeatureAlignment(Term):
    """Align the features with the global prototypes; the gradient reaches only the feature extractor.

    Reads the server state `prototypes`: `mean` [classes, dim] and `has` [classes]. Without `distribution_factor` (an
    ablation) every class weighs the same in the softmax.
    """

    name: ClassVar[str] = "fa"
    tau: float = 0.1
    floor: float = 1
    distribution_factor: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_floor(self.floor)
        check_positive("tau", self.tau, 0.1)

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch whose class has a prototype."""
        prototypes = view.server["prototypes"]
        counts = view.counts if self.distribution_factor else torch.ones_like(view.counts)
        value = feature_alignment(
            view.features,
            view.labels,
            prototypes["mean"],
            counts,
            self.tau,
            prototypes["has"],
            self.floor,
            sample_mask=view.mask,
        )
        return TermValue(value)


def projector_alignment(
    projected_prototypes: Tensor, etf: Tensor, mask: Tensor, *, reduction: Reduction = "sum"
) -> Tensor:
    """Sum over classes with a prototype of ½(1 - cos(q_c, v_c))² (FedBlade, Eq. 15).

    `projected_prototypes [classes, space]` q, `etf [space, classes]` v, `mask [classes]` says which classes have a
    prototype; rows of other classes are ignored. Without prototypes the value and all gradients are 0.

    Deviation: the paper's sum has all classes and does not say what happens before a class has a prototype.
    """
    check_choice("reduction", reduction, ("sum", "mean"))
    check_matrix("projected_prototypes", projected_prototypes, "[classes, space]")
    check_etf(etf, projected_prototypes.shape[1], projected_prototypes.shape[0])
    check_mask(mask, projected_prototypes)
    has = mask != 0
    rows = torch.where(has[:, None], projected_prototypes, torch.zeros_like(projected_prototypes))
    return _over_classes(cosine(rows, etf.mT), has, reduction)


def _over_classes(cosines: Tensor, has: Tensor, reduction: Reduction) -> Tensor:
    """Sum or mean of ½(1 - cos)² over the classes with a prototype."""
    distance = (1 - cosines).square() / 2
    total = torch.where(has, distance, torch.zeros_like(distance)).sum()
    return total if reduction == "sum" else total / has.sum().clamp(min=1)


@losses.register("projector_alignment", paper="FedBlade, Eq. 15")
@dataclass(frozen=True, kw_only=True)
class ProjectorAlignment(Term):
    """Align the projected global prototypes with the class vectors; the gradient reaches only the projector.

    Reads the server state `prototypes`: `mean` [classes, dim] and `has` [classes].
    """

    name: ClassVar[str] = "pa"
    reduction: Reduction = "sum"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("reduction", self.reduction, ("sum", "mean"))

    def __call__(self, view: StepView) -> TermValue:
        """One value per batch; it does not depend on the samples of the batch."""
        etf, has = view.fixed["etf"], view.server["prototypes"]["has"]
        means = view.server["prototypes"]["mean"].detach()
        if not is_signs(etf):
            projected = view.head.project(view.params, means)
            return TermValue(projector_alignment(projected, etf, has, reduction=self.reduction))
        points = torch.where((has != 0)[:, None], means, torch.zeros_like(means))
        cosines = own_cosines(points, view.params["projector.weight"], view.params.get("projector.bias"), etf)
        return TermValue(_over_classes(cosines, has != 0, self.reduction))
