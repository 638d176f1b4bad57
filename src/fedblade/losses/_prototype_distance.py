"""Prototype distance: features should be near the global prototype of their class."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView
from fedblade.losses._masking import mean_of_real, real_rows
from fedblade.losses._shapes import check_labels, check_mask, check_matrix, check_shape


class Guided(NamedTuple):
    """Samples and one point per class to compare them with, with zeros in place of padding and of missing points.

    `used [batch]` says which samples are real and have a point of their class.
    """

    features: Tensor
    labels: Tensor
    points: Tensor
    used: Tensor


def guided_by(name: str, points: Tensor, has: Tensor, features: Tensor, labels: Tensor, mask: Tensor | None) -> Guided:
    """Check the tensors of a loss that compares features with the constants `points [classes, dim]`.

    `name` is the name of the points in messages.
    """
    check_matrix("features", features)
    check_labels(labels, features)
    check_matrix(name, points, "[classes, dim]")
    shape = (points.shape[0], features.shape[1])
    check_shape(name, points, shape, "Take them from the layer of the features, one row per class.")
    check_mask(has, points, "has")
    check_mask(mask, features)
    safe_labels = real_rows(labels, mask)
    exists = has != 0
    used = exists[safe_labels] if mask is None else exists[safe_labels] & (mask != 0)
    return Guided(real_rows(features, mask), safe_labels, real_rows(points.detach(), exists), used)


def prototype_distance(
    features: Tensor, labels: Tensor, prototypes: Tensor, has: Tensor, *, mask: Tensor | None = None
) -> Tensor:
    """Mean of ‖z - p_y‖²/d over the samples whose class has a prototype (FedProto, regulariser L_R).

    `features [batch, dim]` z, `prototypes [classes, dim]` p, constants of the loss, `has [classes]` says which classes
    have a prototype. An empty mean is 0 with zero gradient.

    Deviations: the paper sums, over classes, the distance between the client's class mean and the global prototype.
    Here, as in its code, every sample is compared, and the squared distance is divided by d. A sample whose class has
    no prototype is left out of the mean; in that code it counts as 0.
    """
    given = guided_by("prototypes", prototypes, has, features, labels, mask)
    return mean_of_real((given.features - given.points[given.labels]).square().mean(1), given.used)


@losses.register("prototype_distance", paper="arXiv:2105.00243")
@dataclass(frozen=True, kw_only=True)
class PrototypeDistance(Term):
    """Pull the features to the global prototypes, see `prototype_distance`.

    Reads the server state `prototypes`: `mean` [classes, dim] and `has` [classes].
    """

    name: ClassVar[str] = "proto"

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch whose class has a prototype."""
        prototypes = view.server["prototypes"]
        return TermValue(
            prototype_distance(view.features, view.labels, prototypes["mean"], prototypes["has"], mask=view.mask)
        )
