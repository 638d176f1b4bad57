"""How local training changes test samples of the classes that a client has, and of the classes that it lacks."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fedblade.core.fields import Field
from fedblade.core.metric import Metric, MetricResult
from fedblade.core.registry import metrics
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import Tree
from fedblade.core.views import EndView, StepView, Teacher
from fedblade.diagnostics._batch import class_sums, real_samples
from fedblade.diagnostics._side_fields import OBSERVED, both_sides
from fedblade.diagnostics._vectors import angle, class_vectors, quotient
from fedblade.heads import normalise

SIDES = (*OBSERVED, "erased")

_ALIGNMENT = Field(
    "alignment_{}",
    "Alignment",
    "cosine",
    "The mean cosine between what the classifier receives of a test sample (features, or projected features) and the "
    "classifier's vector of its class, in the clients' models after local training. 1 means the same direction.",
    -1.0,
    1.0,
    "alignment",
    number_format=".2f",
    subject="clients",
)
_GAP = Field(
    "alignment_gap_{}",
    "Change of alignment",
    "cosine",
    "How much local training changed the alignment against the model that the client received. Below 0, the alignment "
    "got worse.",
    short="alignment gap",
    number_format=".2f",
    subject="clients",
)
_ALIGNMENT_FIELDS = (
    replace(
        _ALIGNMENT,
        name="alignment_erased",
        label="Alignment: classes a client has lost",
        reading="For a class that was taken from the client: the mean cosine between what the classifier receives of "
        "its test samples (features, or projected features) and the classifier's vector. 1 means the same direction.",
        variant="erased",
    ),
    replace(
        _GAP,
        name="alignment_gap_erased",
        label="Change of alignment: classes a client has lost",
        reading="How much local training without a class that was taken from the client changed the alignment of this "
        "class. Below 0, the alignment got worse.",
        variant="erased",
    ),
    *both_sides(_ALIGNMENT, OBSERVED),
    *both_sides(_GAP, OBSERVED),
)
_DISTANCE = Field(
    "feature_distance_{}",
    "Movement of features",
    "distance",
    "How far the features of a test sample move during local training.",
    short="feature distance",
    number_format=".2f",
    subject="clients",
    main=False,
)
_ANGLE = Field(
    "feature_angle_{}",
    "Turning of features",
    "degrees",
    "The angle by which the features of a test sample turn during local training.",
    0.0,
    180.0,
    "feature angle (°)",
    number_format=".1f",
    subject="clients",
    main=False,
)
_DRIFT_FIELDS = (*both_sides(_DISTANCE, OBSERVED), *both_sides(_ANGLE, OBSERVED))


@metrics.register("alignment", paper="FedDr+, Figures 2 and 5")
def alignment() -> Metric:
    """Mean cosine of test samples with their class vectors in the clients' trained models, and its change.

    cos(f(x), v_y) in the space of the class vectors. The mean is over the test samples of the classes that the client
    has (observed), lacks (unobserved) or lost for this round (erased), then over the clients that have such classes.
    The gap subtracts the same cosine in the model that the client received, with the class vectors of that model. NaN
    if no client counts; there are no numbers of erased classes if no class was removed.
    """
    return Metric(
        (), _finish(_ALIGNMENT_SUM, ("alignment", "alignment_gap")), (_ALIGNMENT_SUM,), fields=_ALIGNMENT_FIELDS
    )


@metrics.register("feature_drift", paper="FedDr+, Figure 4")
def feature_drift() -> Metric:
    """How far local training moves the features of test samples: mean distance, and mean angle in degrees.

    The features of a client's trained model are compared with those of the received model; means as in `alignment`.
    """
    finish = _finish(_FEATURE_DRIFT, ("feature_distance", "feature_angle"))
    return Metric((), finish, (_FEATURE_DRIFT,), fields=_DRIFT_FIELDS)


def _of_alignment(view: StepView) -> Tree:
    after = _true_class_cosines(view, view.params, view.output.projected)
    before = _true_class_cosines(view, view.anchor, view.teachers[Teacher()].output.projected)
    return class_sums(view, torch.stack((after, after - before), -1))


def _true_class_cosines(view: StepView, params: Tree, projected: Tensor) -> Tensor:
    """Cosines [batch] of samples with the vector of their class."""
    directions = normalise(class_vectors(view.head, params, view.fixed))
    labels = torch.where(real_samples(view), view.labels, 0)
    return (normalise(projected.detach().to(torch.float64)) * directions[labels]).sum(-1)


def _of_feature_drift(view: StepView) -> Tree:
    after, before = view.features.to(torch.float64), view.teachers[Teacher()].features.to(torch.float64)
    return class_sums(view, torch.stack(((after - before).norm(dim=-1), angle(after, before)), -1))


def _by_side(data_pass: DataPass, bound: float) -> Sum:
    """A client's means of the class sums of a pass, over the observed, unobserved and erased classes (the sides).

    `means [sides, numbers]` is 0 for a side without samples; `clients [sides]` is 1 for a side with samples, else 0.
    """

    def side_means(view: EndView) -> Tree:
        sums = view.passes[data_pass.name]
        observed = (view.counts > 0).to(torch.float64)
        erased = (torch.arange(len(observed), device=observed.device) == view.erased).to(torch.float64)
        sides = torch.stack((observed, 1 - observed, erased))
        samples = sides @ sums["count"]
        return {
            "means": sides @ sums["sum"] / samples.clamp(min=1)[:, None],
            "clients": (samples > 0).to(torch.float64),
        }

    return Sum(f"{data_pass.name}_means", side_means, bound, measured=(data_pass,))


_ALIGNMENT_SUM = _by_side(DataPass("alignment", _of_alignment, anchored=True), 2.0)
_FEATURE_DRIFT = _by_side(DataPass("feature_drift", _of_feature_drift, anchored=True), 1e6)


def _finish(declared: Sum, names: tuple[str, ...]) -> Callable[[Mapping[str, Tree]], MetricResult]:
    def finish(totals: Mapping[str, Tree]) -> MetricResult:
        sums = totals[declared.name]
        return {
            f"{name}_{side}": quotient(sums["means"][row, number], sums["clients"][row])
            for number, name in enumerate(names)
            for row, side in enumerate(SIDES)
            if side != "erased" or sums["clients"][row] > 0
        }

    return finish
