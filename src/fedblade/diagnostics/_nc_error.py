"""Neural-collapse error: how far the angles between class prototypes are from those of a simplex ETF."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from fedblade.core.fields import Field
from fedblade.core.metric import Metric, MetricResult
from fedblade.core.registry import metrics
from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree
from fedblade.core.views import Head, StepView
from fedblade.diagnostics._batch import class_sums, sums_by_class
from fedblade.diagnostics._checks import check_class_numbers, check_row_entries, check_samples
from fedblade.diagnostics._class_means import centred, means_of_present
from fedblade.heads import normalise


def nc_error(features: Tensor, labels: Tensor) -> dict[str, float]:
    """Squared distance of the cosines between class prototypes to a simplex ETF's (FedETF, Figs. 5b and 6a).

    With h_c the mean of `features [samples, dim]` over class c and C the number of classes with samples:
    `nc_error` = mean over c < c' of (cos(h_c, h_c') + 1/(C - 1))²; `nc_error_centred` is the same after the mean of the
    h_c is subtracted. Deviation: FedETF's global mean is a sum; here it is the mean of the class means. A prototype of
    length 0 has cosine 0 with all others; with fewer than two classes the error is NaN.
    """
    check_samples(features)
    check_row_entries("labels", labels, features)
    check_class_numbers(labels)
    real = torch.ones_like(labels, dtype=torch.bool)
    count, total = sums_by_class(labels, int(labels.max()) + 1, real, features.detach().double())
    return _errors(means_of_present({"count": count, "sum": total}))


_FIELDS = (
    Field(
        "nc_error",
        "Neural-collapse error",
        "error",
        "The mean squared gap between the cosines of two classes' prototypes and those of the ideal arrangement. Lower "
        "is better. A prototype is the mean of what the classifier receives of a class: features, or projected ones.",
        short="neural-collapse error",
        number_format=".3f",
    ),
    Field(
        "nc_error_centred",
        "Neural-collapse error, centred",
        "nc_error, centred",
        "The neural-collapse error when prototypes are seen from the centre of all prototypes. Lower is better.",
        short="neural-collapse error, centred",
        main=False,
    ),
)


@metrics.register("nc_error", paper="FedETF, Fig. 5b")
def nc_error_metric() -> Metric:
    """Neural-collapse error in the head's space, see `diagnostics.nc_error`.

    Prototypes are means of the unit vectors u if the head projects features, and means of the features z if not.
    """
    return Metric((_PASS,), _finish, fields=_FIELDS)


def _batch_sums(view: StepView) -> Tree:
    projected = view.output.projected.double()
    projects = type(view.head).project is not Head.project
    return class_sums(view, normalise(projected) if projects else projected)


def _finish(totals: Mapping[str, Tree]) -> MetricResult:
    return _errors(means_of_present(totals[_PASS.name]))


def _errors(means: Tensor) -> dict[str, float]:
    if len(means) < 2:
        return {"nc_error": math.nan, "nc_error_centred": math.nan}
    return {"nc_error": _error(means), "nc_error_centred": _error(centred(means))}


def _error(prototypes: Tensor) -> float:
    classes, directions = len(prototypes), normalise(prototypes)
    gaps = (directions @ directions.mT + 1 / (classes - 1)).square()
    return float(torch.triu(gaps, diagonal=1).sum() / math.comb(classes, 2))


_PASS = DataPass("class_sums_of_head", _batch_sums)
