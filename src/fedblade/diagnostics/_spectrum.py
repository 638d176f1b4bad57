"""Dimensional collapse: the spectrum of the features and its effective rank."""

import math
from collections.abc import Mapping, MutableMapping
from typing import Literal

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.fields import Field
from fedblade.core.metric import Metric, MetricResult
from fedblade.core.registry import metrics
from fedblade.core.tree import Tree
from fedblade.diagnostics._batch import as_lists
from fedblade.diagnostics._checks import check_samples
from fedblade.diagnostics._moments import Moments, Space, moments_pass

Matrix = Literal["covariance", "correlation"]
SIGNIFICANT = -2.0
"""Eigenvalues whose natural logarithm is above this count as significant."""
_CACHE: MutableMapping[Tensor, dict[Matrix, Tensor]] = WeakTensorKeyDictionary()
"""Eigenvalues, which several metrics need, by the covariance as long as it lives."""


def spectrum(features: Tensor, matrix: Matrix = "covariance") -> Tensor:
    """Eigenvalues [dim] in float64, descending, of the covariance (1/n, not 1/(n - 1)) of `features [samples, dim]`.

    With `matrix="correlation"` they are those of the correlation, in which constant features are rows of zeros.
    """
    return eigenvalues(_moments(features), matrix)


def effective_rank(features: Tensor, matrix: Matrix = "covariance") -> float:
    """Exponential of the entropy of the normalised spectrum (Roy and Vetterli 2007; FedBlade, Definition 2).

    eRank = exp(-Σ p_i log p_i) with p = λ/Σλ over λ > 0, between 1 and the rank. NaN if all features are constant.
    """
    return entropy_rank(eigenvalues(_moments(features), matrix))


def eigenvalues(moments: Moments, matrix: Matrix) -> Tensor:
    """Descending eigenvalues [dim] of the chosen matrix; NaN if it is not finite.

    An eigenvalue below the rounding of the largest, dim·2⁻⁵²·λ_1, is set to 0, because its logarithm would be noise.
    The eigenvalues are cached as long as the moments exist and do not change.
    """
    if matrix not in ("covariance", "correlation"):
        raise Misconfigured(f"unknown matrix {matrix!r}.{nearest(matrix, ('covariance', 'correlation'))}")
    covariance = moments.covariance()
    cached = _CACHE.setdefault(covariance, {})
    if matrix not in cached:
        cached[matrix] = _descending(covariance if matrix == "covariance" else moments.correlation())
    return cached[matrix]


def _descending(square: Tensor) -> Tensor:
    if not bool(square.isfinite().all()):
        return torch.full_like(square.diagonal(), math.nan)
    values: Tensor = torch.linalg.eigvalsh(square)
    rounding = len(values) * torch.finfo(values.dtype).eps * values[-1].clamp(min=0)
    return torch.where(values > rounding, values, 0.0).flip(-1)


def entropy_rank(values: Tensor) -> float:
    """Effective rank of a spectrum; NaN if all eigenvalues are 0."""
    shares = values / values.sum()
    return float(torch.special.entr(shares).sum().exp())


_SPECTRUM_FIELDS = (
    Field(
        "significant_values",
        "Directions with noticeable variance",
        "directions",
        "How many directions have a variance (an eigenvalue of the covariance) above e⁻², about 0.14. The "
        "number depends on the scale of the features, unlike the effective rank. So compare how it changes over "
        "rounds, not how high it is.",
        short="significant eigenvalues",
        number_format=".1f",
    ),
    Field(
        "zero_variance_share",
        "Features that never change",
        "share",
        "The share of features that are the same for every test sample; such features carry no information.",
        0.0,
        1.0,
        "share of constant features",
        number_format=".2f",
        main=False,
    ),
)


@metrics.register("spectrum", paper="FedDecorr, Figs. 2 to 7")
def spectrum_metric() -> Metric:
    """Eigenvalues of the features' covariance, the number of significant ones, and the share of constant features.

    The array `spectrum [dim]` has all eigenvalues in descending order; `significant_values` counts those with
    log λ > -2, and `zero_variance_share` is between 0 and 1.
    """
    return Metric((moments_pass("feature"),), _finish_spectrum, fields=_SPECTRUM_FIELDS)


def _finish_spectrum(totals: Mapping[str, Tree]) -> MetricResult:
    moments = Moments.from_tree(totals[moments_pass("feature").name])
    values, variances = eigenvalues(moments, "covariance"), moments.variances()
    significant = torch.where(values.isnan(), math.nan, (values > math.exp(SIGNIFICANT)).double())
    constant = torch.where(variances.isnan(), math.nan, (variances == 0).double())
    return {
        "significant_values": float(significant.sum()),
        "zero_variance_share": float(constant.mean()),
        "spectrum": as_lists(values),
    }


def _rank_field(name: str, label: str, short: str, reading: str, *, main: bool) -> Field:
    return Field(name, label, "effective rank", reading, short=short, number_format=".1f", main=main)


_FEATURE_FIELDS = (
    _rank_field(
        "erank_feature",
        "Effective rank of the features",
        "effective rank, features",
        "The number of directions in use, counted by strength: 1 if everything varies along one line, the full number "
        "of features if all directions are equally strong. Higher means less collapse.",
        main=True,
    ),
    _rank_field(
        "erank_feature_correlation",
        "Effective rank, correlation",
        "effective rank of correlation, features",
        "The effective rank when every feature is first brought to the same variance, so that a few large features do "
        "not hide the many small ones. Higher means less collapse.",
        main=False,
    ),
)
_PROJECTED_FIELDS = (
    _rank_field(
        "erank_proj",
        "Effective rank after the projection",
        "effective rank, projected",
        "The effective rank of the features as the classifier receives them, after the projection of methods that have "
        "one. A projection may have fewer dimensions, so compare methods with a projection only with each "
        "other.",
        main=True,
    ),
    _rank_field(
        "erank_proj_correlation",
        "Effective rank, projected, correlation",
        "effective rank of correlation, projected",
        "The effective rank after the projection of methods that have one, when every projected feature is first "
        "brought to the same variance. Higher means less collapse.",
        main=False,
    ),
)


@metrics.register("erank_feature", paper="FedBlade, Definition 2")
def erank_feature() -> Metric:
    """Effective rank of the features, from their covariance and from their correlation."""
    return _erank("feature", "erank_feature", _FEATURE_FIELDS)


@metrics.register("erank_proj", paper="FedBlade, Definition 2")
def erank_proj() -> Metric:
    """Effective rank of the projector's output before normalisation; of the features if there is no projector."""
    return _erank("projected", "erank_proj", _PROJECTED_FIELDS)


def _erank(space: Space, key: str, fields: tuple[Field, ...]) -> Metric:
    data_pass = moments_pass(space)

    def finish(totals: Mapping[str, Tree]) -> MetricResult:
        moments = Moments.from_tree(totals[data_pass.name])
        return {
            key: entropy_rank(eigenvalues(moments, "covariance")),
            f"{key}_correlation": entropy_rank(eigenvalues(moments, "correlation")),
        }

    return Metric((data_pass,), finish, fields=fields)


def _moments(features: Tensor) -> Moments:
    check_samples(features)
    return Moments.of(features, torch.zeros(len(features), dtype=torch.int64, device=features.device), 1)
