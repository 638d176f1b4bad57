"""Neural collapse: how tight the classes are (NC1) and how near their means are to a simplex ETF (NC2).

Classes without samples are left out; C is the number of the other classes. Undefined numbers are NaN: all numbers
without samples, and all distances between classes with fewer than two classes.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from fedblade.core.fields import Field
from fedblade.core.metric import Metric
from fedblade.core.registry import metrics
from fedblade.core.tree import Tree
from fedblade.diagnostics._checks import check_class_numbers, check_row_entries, check_samples
from fedblade.diagnostics._moments import Moments, Space, moments_pass
from fedblade.heads import normalise

PSEUDO_INVERSE_CUT = 1e-10
_ROWS = 1024
"""Rows of a [classes, classes] matrix that are computed at once."""
_PAPER = "Papyan, Han and Donoho 2020"


def nc1(features: Tensor, labels: Tensor) -> dict[str, float]:
    """Within-class variability of `features [samples, dim]`, in three definitions.

    With Σ_W the mean within-class covariance and Σ_B the covariance of the class means:
    `nc1_pinv` = tr(Σ_W Σ_B⁺)/C, `nc1_ratio` = tr Σ_W/tr(Σ_W + Σ_B), and `nc1_unit` = mean_c(1 - ‖mean unit feature of
    c‖²), the variance on the sphere.
    """
    return finish_nc1(_moments(features, labels))


def nc2(features: Tensor, labels: Tensor) -> dict[str, float]:
    """Distance of the class means of `features [samples, dim]` to a simplex ETF, in four definitions.

    With M the centred class means, A the cosines between them and T the ETF's, 1 and -1/(C - 1):
    `nc2_fro` = ‖A - T‖_F, `nc2_normalised` = ‖MMᵀ/‖MMᵀ‖_F - T/‖T‖_F‖_F, `nc2_equinorm` = std/mean of the lengths of M,
    `nc2_equiangle` = mean of |A_ij + 1/(C - 1)| over pairs.
    """
    return finish_nc2(_moments(features, labels))


def finish_nc1(moments: Moments) -> dict[str, float]:
    """NC1 from moments."""
    means, weights, units = _class_means(moments)
    if len(means) == 0:
        return dict.fromkeys(("nc1_pinv", "nc1_ratio", "nc1_unit"), math.nan)
    centred, offsets = means - means.mean(0), means - moments.total / moments.count
    within = moments.covariance() - (offsets.mT * weights) @ offsets
    trace_within, trace_between = within.trace().clamp(min=0), centred.square().sum() / len(means)
    return {
        "nc1_pinv": _trace_pinv(within, centred),
        "nc1_ratio": float(trace_within / (trace_within + trace_between)),
        "nc1_unit": float((1 - units.square().sum(1)).clamp(min=0).mean()),
    }


def finish_nc2(moments: Moments) -> dict[str, float]:
    """NC2 from moments."""
    means, _, _ = _class_means(moments)
    classes = len(means)
    if classes < 2:
        return dict.fromkeys(("nc2_fro", "nc2_normalised", "nc2_equinorm", "nc2_equiangle"), math.nan)
    centred = means - means.mean(0)
    lengths = centred.norm(dim=1)
    fro, normalised, off_diagonal = _distances_to_etf(centred)
    return {
        "nc2_fro": fro,
        "nc2_normalised": normalised,
        "nc2_equinorm": float(lengths.std(correction=0) / lengths.mean()),
        "nc2_equiangle": off_diagonal / (classes * (classes - 1)),
    }


_SCATTER = (
    "How much samples of one class scatter around their mean, {}. Lower is closer together; 0 means a single point."
)
_EVEN_SPREAD = (
    "How far the class means are from the evenly spread arrangement; 0 means perfectly even, lower is better."
)
_READINGS = {
    "unit": _SCATTER.format("by direction only"),
    "ratio": _SCATTER.format("as a share of all"),
    "pinv": _SCATTER.format("against the gaps between classes"),
    "fro": "How far the cosines between class means are from the even ones, all pairs together (Frobenius norm); it "
    "grows with the number of classes. 0 means perfectly even, lower is better.",
    "normalised": "How far the class means are from the evenly spread arrangement in length and direction, on one "
    "scale for any number of classes. 0 means perfectly even, lower is better.",
    "equinorm": "How much the class means differ in length, as a share of their mean length. 0 means equal lengths.",
    "equiangle": "How far the cosine between two class means is from the even one, on average. 0 means evenly spread.",
}
_SHORT = {"fro": "distance", "equinorm": "norms", "equiangle": "angles"}
_SPACES = {"feature": ("of the features", "of features"), "proj": ("of what the classifier receives", "projected")}


def _variant(kind: str, space: str, definition: str) -> Field:
    """A definition of NC1 or NC2 in one space."""
    long, short = _SPACES[space]
    return Field(
        f"{kind}_{space}_{definition}",
        f"{kind.upper()} {long}, {definition}",
        f"{kind}, {definition}",
        _READINGS[definition],
        0.0,
        1.0 if definition in ("unit", "ratio") else None,
        short=f"{kind.upper()} {short}, {_SHORT.get(definition, definition)}",
        main=False,
    )


def _fields(kind: str, definitions: tuple[str, ...], label: str, reading: str = "") -> tuple[Field, ...]:
    """All definitions in both spaces; the first one, of the features, is the main one."""
    first, *others = (_variant(kind, space, definition) for space in _SPACES for definition in definitions)
    reading = reading or first.reading
    main = replace(first, label=label, unit=kind.upper(), reading=reading, number_format=".3f", main=True)
    return (main, *others)


_NC1_FIELDS = _fields("nc1", ("unit", "ratio", "pinv"), label="Scatter within classes (NC1)")
_NC2_FIELDS = _fields(
    "nc2",
    ("normalised", "fro", "equinorm", "equiangle"),
    label="Uneven spread of class means (NC2)",
    reading=_EVEN_SPREAD,
)


@metrics.register("nc1", paper=_PAPER)
def nc1_metric() -> Metric:
    """Within-class variability of the features and of the projected directions, see `diagnostics.nc1`."""
    return _in_both_spaces("nc1", finish_nc1, _NC1_FIELDS)


@metrics.register("nc2", paper=_PAPER)
def nc2_metric() -> Metric:
    """Distance of class means to a simplex ETF, features and projected directions, see `diagnostics.nc2`."""
    return _in_both_spaces("nc2", finish_nc2, _NC2_FIELDS)


def _in_both_spaces(
    prefix: Literal["nc1", "nc2"], finish_one: Callable[[Moments], dict[str, float]], fields: tuple[Field, ...]
) -> Metric:
    spaces: dict[str, Space] = {"feature": "feature", "proj": "direction"}
    passes = {name: moments_pass(space) for name, space in spaces.items()}

    def finish(totals: Mapping[str, Tree]) -> dict[str, float]:
        return {
            key.replace(prefix, f"{prefix}_{name}"): value
            for name, data_pass in passes.items()
            for key, value in finish_one(Moments.from_tree(totals[data_pass.name])).items()
        }

    return Metric(tuple(passes.values()), finish, fields=fields)


def _class_means(moments: Moments) -> tuple[Tensor, Tensor, Tensor]:
    """Means [classes, dim], shares of the samples [classes] and mean unit vectors of the classes with samples."""
    present = moments.class_count > 0
    counts = moments.class_count[present]
    return (
        moments.class_total[present] / counts[:, None],
        counts / moments.count,
        moments.class_unit[present] / counts[:, None],
    )


def _trace_pinv(within: Tensor, centred: Tensor) -> float:
    """tr(Σ_W Σ_B⁺)/C with Σ_B = MᵀM/C, from the smaller of MᵀM and MMᵀ, which have the same positive eigenvalues."""
    classes, dim = centred.shape
    gram = centred @ centred.mT / classes if classes <= dim else centred.mT @ centred / classes
    if not bool(gram.isfinite().all()):
        return math.nan
    values, vectors = torch.linalg.eigh(gram)
    kept = values > PSEUDO_INVERSE_CUT * values[-1].clamp(min=0)
    if not bool(kept.any()):
        return math.nan
    # Eigenvectors of MMᵀ become those of Σ_B by M; their squared lengths are then C times the eigenvalues.
    axes, squared = vectors[:, kept].mT, torch.ones_like(values[kept])
    if classes <= dim:
        axes, squared = axes @ centred, classes * values[kept]
    captured = ((axes @ within) * axes).sum(1) / squared
    return float((captured / values[kept]).sum() / classes)


def _distances_to_etf(centred: Tensor) -> tuple[float, float, float]:
    """Frobenius distances of A and of MMᵀ/‖MMᵀ‖ to T and T/‖T‖, and the sum of |A - T| off the diagonal.

    With many classes no [classes, classes] matrix is held: it is computed some rows at a time.
    """
    classes, dim = centred.shape
    directions, other = normalise(centred), -1 / (classes - 1)
    length = (centred @ centred.mT if classes <= dim else centred.mT @ centred).norm()
    target_length = math.sqrt(classes + classes * (classes - 1) * other**2)
    squares, normalised_squares, off_diagonal = (centred.new_zeros(()) for _ in range(3))
    for start in range(0, classes, _ROWS):
        rows = slice(start, start + _ROWS)
        cosines = directions[rows] @ directions.mT
        target = torch.full_like(cosines, other)
        target.diagonal(start).fill_(1.0)
        gap = cosines - target
        squares += gap.square().sum()
        off_diagonal += gap.abs().sum() - gap.diagonal(start).abs().sum()
        normalised_squares += (centred[rows] @ centred.mT / length - target / target_length).square().sum()
    return float(squares.sqrt()), float(normalised_squares.sqrt()), float(off_diagonal)


def _moments(features: Tensor, labels: Tensor) -> Moments:
    check_samples(features)
    check_row_entries("labels", labels, features)
    check_class_numbers(labels)
    return Moments.of(features, labels, int(labels.max()) + 1)
