"""Dimensional collapse: the spectrum of the features and its effective rank."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.metric import Metric
from fedblade.core.registry import metrics
from fedblade.core.tree import Tree
from fedblade.diagnostics._checks import check_samples
from fedblade.diagnostics._moments import Moments, Space, moments_pass

Matrix = Literal["covariance", "correlation"]


def spectrum(features: Tensor, matrix: Matrix = "covariance") -> Tensor:
    """Eigenvalues [dim] in float64, descending, of the covariance (1/n, not 1/(n - 1)) of `features [samples, dim]`.

    With `matrix="correlation"` of the correlation, in which constant features are rows of zeros.
    """
    return eigenvalues(_moments(features), matrix)


def effective_rank(features: Tensor, matrix: Matrix = "covariance") -> float:
    """Exponential of the entropy of the normalised spectrum (Roy and Vetterli 2007; FedBlade, Definition 2).

    eRank = exp(-Σ p_i log p_i) with p = λ/Σλ over λ > 0, between 1 and the rank. NaN if all features are constant.
    """
    return entropy_rank(eigenvalues(_moments(features), matrix))


def eigenvalues(moments: Moments, matrix: Matrix) -> Tensor:
    """Descending eigenvalues of the chosen matrix, rounding below zero clipped."""
    if matrix not in ("covariance", "correlation"):
        raise Misconfigured(f"unknown matrix {matrix!r}.{nearest(matrix, ('covariance', 'correlation'))}")
    square = moments.covariance() if matrix == "covariance" else moments.correlation()
    values: Tensor = torch.linalg.eigvalsh(square)
    return values.clamp(min=0).flip(-1)


def entropy_rank(values: Tensor) -> float:
    """Effective rank of a spectrum; NaN if it is all zero."""
    shares = values / values.sum()
    return float(torch.special.entr(shares).sum().exp())


@metrics.register("erank_feature", paper="FedBlade, Definition 2")
def erank_feature() -> Metric:
    """Effective rank of the extractor's output, of its covariance and of its correlation."""
    return _erank("feature", "erank_feature")


@metrics.register("erank_proj", paper="FedBlade, Definition 2")
def erank_proj() -> Metric:
    """Effective rank of the projector's output before normalisation; of the features where there is no projector."""
    return _erank("projected", "erank_proj")


def _erank(space: Space, key: str) -> Metric:
    data_pass = moments_pass(space)

    def finish(totals: Mapping[str, Tree]) -> dict[str, float]:
        moments = Moments.from_tree(totals[data_pass.name])
        return {
            key: entropy_rank(eigenvalues(moments, "covariance")),
            f"{key}_correlation": entropy_rank(eigenvalues(moments, "correlation")),
        }

    return Metric((data_pass,), finish)


def _moments(features: Tensor) -> Moments:
    check_samples(features)
    return Moments.of(features, torch.zeros(len(features), dtype=torch.int64, device=features.device), 1)
