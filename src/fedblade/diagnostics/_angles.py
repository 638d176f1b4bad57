"""Angles between classes that a client has, and between those it lacks: class vectors and class means."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fedblade.core.fields import Field
from fedblade.core.metric import Metric, MetricResult
from fedblade.core.registry import metrics
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import Tree
from fedblade.core.views import EndView
from fedblade.diagnostics._batch import class_sums
from fedblade.diagnostics._side_fields import EXISTING, both_sides
from fedblade.diagnostics._vectors import CLASS_VECTORS, angle_matrix, class_vectors, pair_shares, quotient
from fedblade.heads import normalise

_LOCAL_HEADS = Field(
    "angle_{}_local",
    "Angles of local classifiers",
    "degrees",
    "The mean angle between the classifier's vectors of two classes, after local training. Small angles mean that the "
    "classifier hardly tells the classes apart.",
    0.0,
    180.0,
    "angle, local heads (°)",
    number_format=".1f",
    subject="clients",
)
_GLOBAL_HEAD = replace(
    _LOCAL_HEADS,
    name="angle_{}_global",
    label="Angles of the averaged classifier",
    reading="The mean angle between the averaged classifier's vectors of two classes, a mean over the clients of the "
    "round. Small angles mean that the classifier hardly tells the classes apart.",
    short="angle, global head (°)",
    subject="model",
    main=False,
)
_CLASS_MEANS = replace(
    _LOCAL_HEADS,
    name="class_mean_angle_{}",
    label="Angles of class means",
    reading="The mean angle between the mean features of two classes, in the clients' models after local training. "
    "Wider angles mean that the classes are better separated.",
    short="angle, class means (°)",
    main=False,
)
_ALL_CLASS_MEANS = replace(
    _CLASS_MEANS,
    name="class_mean_angle_all",
    label="Angles of class means: all classes",
    reading="The mean angle between the mean features of two classes, in the model that is measured. Wider angles mean "
    "that the classes are better separated.",
    variant="all",
    subject="model",
)
_CLASSIFIER_FIELDS = (*both_sides(_LOCAL_HEADS, EXISTING), *both_sides(_GLOBAL_HEAD, EXISTING))
_MEAN_FIELDS = (*both_sides(_CLASS_MEANS, EXISTING), _ALL_CLASS_MEANS)


@metrics.register("classifier_angles", paper="FedGELA, Figures 2 and 5")
def classifier_angles() -> Metric:
    """Mean angle in degrees between class vectors of a client's existing classes, and of its missing classes.

    The mean is over pairs of classes, then over the clients of the round that have a pair; NaN if no client has one. It
    is computed with each client's trained head and with the head of the measured model.
    """
    return Metric((CLASS_VECTORS,), _finish_classifiers, (_CLASSIFIERS,), fields=_CLASSIFIER_FIELDS)


@metrics.register("class_mean_angles", paper="FedGELA, Figure 3")
def class_mean_angles() -> Metric:
    """Mean angle in degrees between class means of unit features on the test samples, existing and missing classes.

    The mean is over pairs of existing (missing) classes in each client's trained model, then over clients;
    `class_mean_angle_all` is the mean over all pairs in the measured model. Classes without test samples are left out;
    a mean without pairs is NaN. Deviation: the paper measures existing classes on the client's test samples; here all
    test samples of a class are used.
    """
    return Metric((_CLASS_DIRECTIONS,), _finish_means, (_MEANS,), fields=_MEAN_FIELDS)


_CLASS_DIRECTIONS = DataPass(
    "class_directions", lambda view: class_sums(view, normalise(view.features.to(torch.float64)))
)


def _of_classifiers(view: EndView) -> Tree:
    vectors = class_vectors(view.head, view.params, view.fixed)
    return _by_side(view.counts > 0, torch.ones_like(view.counts, dtype=torch.bool), angle_matrix(vectors))


def _of_means(view: EndView) -> Tree:
    sums = view.passes[_CLASS_DIRECTIONS.name]
    sides = _by_side(view.counts > 0, sums["count"] > 0, angle_matrix(sums["sum"]))
    return {name: sides[name] for name in ("angle", "clients")}


def _by_side(existing: Tensor, known: Tensor, angles: Tensor) -> Tree:
    """For existing and for missing classes: the weights of pairs, the mean angle, and whether there is a pair.

    `shares [sides, classes, classes]`, `angle [sides]` and `clients [sides]`. Only `known` classes count.
    """
    shares = torch.stack([pair_shares((side & known).to(torch.float64)) for side in (existing, ~existing)])
    return {
        "shares": shares,
        "angle": (shares * angles).sum((-2, -1)),
        "clients": (shares.sum((-2, -1)) > 0).to(torch.float64),
    }


_CLASSIFIERS = Sum("classifier_angles", _of_classifiers, bound=180.0)
_MEANS = Sum("class_mean_angles", _of_means, bound=180.0, measured=(_CLASS_DIRECTIONS,))


def _finish_classifiers(totals: Mapping[str, Tree]) -> MetricResult:
    sums, measured = totals[_CLASSIFIERS.name], totals[CLASS_VECTORS.name]
    together = (sums["shares"] * angle_matrix(measured["total"] / measured["count"])).sum((-2, -1))
    return {
        f"angle_{side}_{where}": quotient(angles[row], sums["clients"][row])
        for where, angles in (("local", sums["angle"]), ("global", together))
        for row, side in enumerate(EXISTING)
    }


def _finish_means(totals: Mapping[str, Tree]) -> MetricResult:
    sums, measured = totals[_MEANS.name], totals[_CLASS_DIRECTIONS.name]
    shares = pair_shares((measured["count"] > 0).to(torch.float64))
    sides = {
        f"class_mean_angle_{side}": quotient(sums["angle"][row], sums["clients"][row])
        for row, side in enumerate(EXISTING)
    }
    return sides | {"class_mean_angle_all": quotient((shares * angle_matrix(measured["sum"])).sum(), shares.sum())}
