"""Consistency: how far clients agree after local training on the features of a class and on the classifier."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from fedblade.core.fields import Field
from fedblade.core.metric import Metric, MetricResult
from fedblade.core.registry import metrics
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import Tree
from fedblade.core.views import EndView
from fedblade.diagnostics._batch import class_sums
from fedblade.diagnostics._vectors import class_vectors, mean_pair_cosine
from fedblade.heads import normalise


def _cosine_field(name: str, label: str, reading: str) -> Field:
    short = name.replace("_", " ")
    return Field(name, label, "cosine", reading, -1.0, 1.0, short, number_format=".2f", subject="clients")


_PROTOTYPE_FIELD = _cosine_field(
    "prototype_consistency",
    "Agreement on what a class looks like",
    "The mean cosine between two clients' mean features of the same class: 1 if all clients see a class alike.",
)
_CLASSIFIER_FIELD = _cosine_field(
    "classifier_consistency",
    "Agreement of the clients' classifiers",
    "The mean cosine between two clients' classifiers after local training; a classifier that is fixed gives 1.",
)


@metrics.register("prototype_consistency", paper="FedETF, Figures 1 and 5a")
def prototype_consistency() -> Metric:
    """Mean cosine of two clients' prototypes of a class, over pairs and then over classes of two or more clients.

    A prototype is the mean feature of the client's training samples of the class, by its trained model. NaN if no two
    clients have a class in common. Deviation: the paper does not say in which space; here it is the features.
    """
    return Metric((), _finish_prototypes, (_PROTOTYPES,), fields=(_PROTOTYPE_FIELD,))


@metrics.register("classifier_consistency", paper="FedETF, Figure 1")
def classifier_consistency() -> Metric:
    """Mean cosine of two clients' classifiers, with all class vectors joined to one vector; NaN for one client.

    The bias is left out. Fixed class vectors give 1.
    """
    return Metric((), _finish_classifiers, (_CLASSIFIERS,), fields=(_CLASSIFIER_FIELD,))


_CLASS_FEATURES = DataPass("own_class_features", lambda view: class_sums(view, view.features))


def _of_prototypes(view: EndView) -> Tree:
    """Unit prototypes, zero for classes that the client lacks."""
    sums = view.passes[_CLASS_FEATURES.name]
    units, has = normalise(sums["sum"] / sums["count"].clamp(min=1)[:, None]), (sums["count"] > 0).to(torch.float64)
    return {"total": units, "squares": units.square().sum(-1), "clients": has}


def _of_classifiers(view: EndView) -> Tree:
    unit = normalise(class_vectors(view.head, view.params, view.fixed).flatten())
    return {"total": unit, "squares": unit.square().sum(), "clients": torch.ones_like(unit[0])}


_PROTOTYPES = Sum("unit_prototypes", _of_prototypes, bound=1.0, passes=(_CLASS_FEATURES,), by_class=True)
_CLASSIFIERS = Sum("unit_classifiers", _of_classifiers, bound=1.0)


def _finish_prototypes(totals: Mapping[str, Tree]) -> MetricResult:
    sums = totals[_PROTOTYPES.name]
    cosines = _cosine(sums)[sums["clients"] > 1]
    return {"prototype_consistency": float(cosines.mean()) if len(cosines) else math.nan}


def _finish_classifiers(totals: Mapping[str, Tree]) -> MetricResult:
    return {"classifier_consistency": float(_cosine(totals[_CLASSIFIERS.name]))}


def _cosine(sums: Tree) -> Tensor:
    return mean_pair_cosine(sums["total"].square().sum(-1), sums["squares"], sums["clients"])
