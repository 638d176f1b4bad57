"""How local training changes test samples of the classes that a client has, and of the classes that it lacks."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fedblade.core.fields import Field
from fedblade.core.metric import Found, Metric
from fedblade.core.registry import metrics
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import Tree
from fedblade.core.views import EndView, StepView, Teacher
from fedblade.diagnostics._batch import class_sums, members, real_samples
from fedblade.diagnostics._vectors import angle, class_vectors, quotient
from fedblade.heads import normalise

SIDES = ("observed", "unobserved", "erased")


_LACKED = "The same for classes of which the client has no sample, on the same scale."
_COSINE, _DEGREES = (-1.0, 1.0), (0.0, 180.0)


def _field(
    name: str, label: str, unit: str, reading: str, bounds: tuple[float | None, float | None], *, main: bool = True
) -> Field:
    quantity, _, side = name.rpartition("_")
    degrees = unit == "degrees"
    return Field(
        name,
        label,
        unit,
        reading,
        *bounds,
        short=quantity.replace("_", " ") + (" (°)" if degrees else ""),
        variant=side,
        number_format=".1f" if degrees else ".2f",
        subject="clients",
        main=main,
    )


_ALIGNMENT_FIELDS = (
    _field(
        "alignment_erased",
        "Alignment, classes a client has lost",
        "cosine",
        "How well what the classifier receives (features, projected where the method has a projection) still points at "
        "its vector of a class that was taken from the client.",
        _COSINE,
    ),
    _field(
        "alignment_gap_erased",
        "Change of alignment, classes a client has lost",
        "cosine",
        "How much local training without these classes changed that alignment against the model the client received. "
        "Below 0, it got worse.",
        (None, None),
    ),
    _field(
        "alignment_observed",
        "Alignment: classes a client has",
        "cosine",
        "The mean cosine between what the classifier receives of a test sample and the classifier's vector of its "
        "class, in the clients' models after local training: of the features, or, with methods that have a projection, "
        "of the projected ones. 1 means that they point exactly where the classifier looks.",
        _COSINE,
    ),
    _field("alignment_unobserved", "Alignment: classes it lacks", "cosine", _LACKED, _COSINE),
    _field(
        "alignment_gap_observed",
        "Change of alignment: classes a client has",
        "cosine",
        "How much local training changed that alignment against the model the client received. Below 0, it got worse.",
        (None, None),
    ),
    _field("alignment_gap_unobserved", "Change of alignment: classes it lacks", "cosine", _LACKED, (None, None)),
)
_DRIFT_FIELDS = (
    _field(
        "feature_distance_observed",
        "Movement of features: classes a client has",
        "distance",
        "How far the features of a test sample move while the client trains, from the received model to the returned.",
        (None, None),
        main=False,
    ),
    _field(
        "feature_distance_unobserved",
        "Movement of features: classes it lacks",
        "distance",
        _LACKED,
        (None, None),
        main=False,
    ),
    _field(
        "feature_angle_observed",
        "Turning of features: classes a client has",
        "degrees",
        "The angle by which the features of a test sample turn during local training.",
        _DEGREES,
        main=False,
    ),
    _field(
        "feature_angle_unobserved",
        "Turning of features: classes it lacks",
        "degrees",
        _LACKED,
        _DEGREES,
        main=False,
    ),
)


@metrics.register("alignment", paper="FedDr+, Figures 2 and 5")
def alignment() -> Metric:
    """Mean cosine of test samples with their class vectors in the clients' trained models, and its change.

    cos(f(x), v_y) in the space of the class vectors. The mean is over the test samples of the classes that the client
    has (observed), lacks (unobserved) or lost for this round (erased), then over the clients that have such classes.
    The gap subtracts the same cosine in the model that the client received, with the class vectors of that model. NaN
    if no client counts; there are no numbers of erased classes if no class was removed.
    """
    return Metric((), _finish(_ALIGNMENT, ("alignment", "alignment_gap")), (_ALIGNMENT,), fields=_ALIGNMENT_FIELDS)


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
    vectors = class_vectors(view.head, params, view.fixed)
    cosines = normalise(projected.detach().to(torch.float64)) @ normalise(vectors).mT
    return (cosines * members(view.labels, len(vectors), real_samples(view))).sum(-1)


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


_ALIGNMENT = _by_side(DataPass("alignment", _of_alignment, anchored=True), 2.0)
_FEATURE_DRIFT = _by_side(DataPass("feature_drift", _of_feature_drift, anchored=True), 1e6)


def _finish(declared: Sum, names: tuple[str, ...]) -> Callable[[Mapping[str, Tree]], Found]:
    def finish(totals: Mapping[str, Tree]) -> Found:
        sums = totals[declared.name]
        return {
            f"{name}_{side}": quotient(sums["means"][row, number], sums["clients"][row])
            for number, name in enumerate(names)
            for row, side in enumerate(SIDES)
            if side != "erased" or sums["clients"][row] > 0
        }

    return finish
