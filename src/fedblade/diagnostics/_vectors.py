"""Class vectors of a head, and the arithmetic of angles and pairs that metrics of trained clients share."""

import math

import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree, tree_map
from fedblade.core.views import Head, HeadOutput, StepView
from fedblade.diagnostics._batch import real_samples
from fedblade.heads import normalise

_BODY = "body."
RIGHT_ANGLE = 90.0


def class_vectors(head: Head, params: Tree, fixed: Tree) -> Tensor:
    """The vectors [classes, space] in float64 that `head` compares its `projected` vectors with.

    Raw logits of the identity less those of zero: right for every head whose raw logits are affine in `projected`, as
    those of all registered heads are, whether or not they normalise, scale or project. A bias is no part of the
    vectors, nor are a scale, FedGELA's length and class shares, and FedRoD's personal head. Parameters of the body may
    be among `params`; they are not read.
    """
    weights, kept = _of_head(params), _of_head(fixed)
    probes = _probes(_width(head, weights, kept), weights | kept)
    output = head(weights, kept, probes)
    if output.projected is not probes:
        # No features are known whose projection is the identity, so raw logits must not depend on the logits.
        probes = _probes(output.projected.shape[-1], weights | kept)
        output = HeadOutput(output.logits[:0], probes)
    raw = head.raw_logits(weights, kept, output)
    if len(raw) != len(probes):
        raise Misconfigured(
            f"head {type(head).__name__} projects features, but its raw_logits are not made of `projected` alone. "
            f"Write a raw_logits of its own for it, or leave out the metrics of class vectors."
        )
    return (raw[:-1] - raw[-1]).mT


def _of_head(tree: Tree) -> Tree:
    return {name: leaf.detach().to(torch.float64) for name, leaf in tree.items() if not name.startswith(_BODY)}


def _width(head: Head, params: Tree, fixed: Tree) -> int:
    """Width of the features that a head takes: of all sizes of its tensors the one that fits, tried on zeros."""
    sizes = {size for leaf in (*params.values(), *fixed.values()) for size in leaf.shape}
    # On the CPU: the meta device, which needs no memory, would import torch's compiler for a second.
    weights, kept = (tree_map(lambda leaf: torch.zeros(leaf.shape), tree) for tree in (params, fixed))
    for size in sorted(sizes):
        try:
            head(weights, kept, torch.zeros(1, size))
        except RuntimeError:
            continue
        return size
    raise Misconfigured(
        f"head {type(head).__name__} has no tensor as wide as its features (sizes: {sorted(sizes)}), so its class "
        f"vectors cannot be found. Leave out the metrics of class vectors."
    )


def _probes(width: int, like: Tree) -> Tensor:
    """The rows of the identity, then a row of zeros."""
    device = next(iter(like.values())).device
    return torch.eye(width + 1, width, dtype=torch.float64, device=device)


def _of_vectors(view: StepView) -> Tree:
    count = real_samples(view).to(torch.float64).sum()
    return {"total": count * class_vectors(view.head, view.params, view.fixed), "count": count}


CLASS_VECTORS = DataPass("class_vectors", _of_vectors)
"""The measured model's class vectors, once for every sample: `total`/`count` are the vectors, to the last digit."""


def angle_matrix(vectors: Tensor) -> Tensor:
    """Angles in degrees between all of `vectors [n, dim]`, [n, n]; a zero vector is at right angles to every other."""
    units = normalise(vectors)
    return torch.rad2deg((units @ units.mT).clamp(-1, 1).acos())


def angle(a: Tensor, b: Tensor) -> Tensor:
    """Angle in degrees along the last axis, good to the last digit at 0 and 180; 90 where either is a zero vector."""
    u, v = normalise(a), normalise(b)
    apart, together = (u - v).norm(dim=-1), (u + v).norm(dim=-1)
    return torch.where(apart + together > 0, torch.rad2deg(2 * torch.atan2(apart, together)), RIGHT_ANGLE)


def pair_shares(members: Tensor) -> Tensor:
    """For `members [n]`, 1 for each that takes part, what every pair counts in their mean: [n, n], zero without pair.

    Each pair is there once, above the diagonal.
    """
    pairs = torch.outer(members, members).triu(1)
    return pairs / pairs.sum().clamp(min=1)


def mean_pair_cosine(square: Tensor, squares: Tensor, number: Tensor) -> Tensor:
    """Mean of the cosines of all pairs i≠j of n = `number` vectors, from their unit vectors u.

    (‖Σu‖² − Σ‖u‖²)/(n(n − 1)) with ‖Σu‖² = `square` and Σ‖u‖² = `squares`, less than n by as many vectors as are zero:
    these have a cosine of 0 to all others. NaN without a pair.
    """
    pairs = number * (number - 1)
    return torch.where(pairs > 0, (square - squares) / pairs, math.nan)


def quotient(numerator: Tensor, denominator: Tensor) -> float:
    """A mean from its sums; NaN where nothing was counted."""
    return float(numerator / denominator) if denominator > 0 else math.nan
