"""Feature alignment: features should be nearest to the global prototype of their class."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView
from fedblade.heads import normalise
from fedblade.losses._balanced_cross_entropy import log_counts
from fedblade.losses._checks import check_floor, check_positive
from fedblade.losses._cross_entropy import cross_entropy
from fedblade.losses._masking import real_rows
from fedblade.losses._shapes import check_counts, check_labels, check_mask, check_matrix, check_shape


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
