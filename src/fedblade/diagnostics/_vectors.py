"""Class vectors of a head, and the arithmetic of angles and pairs for metrics of trained clients."""

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

    They are the raw logits of the identity minus those of zero. This is right for every head whose raw logits are
    affine in `projected`, as in all registered heads, whether or not they normalise, scale or project. The vectors do
    not include a bias, a scale, FedGELA's length and class shares, and FedRoD's personal head. `params` may contain
    parameters of the body; they are not read.
    """
    trained, constant = _of_head(params), _of_head(fixed)
    probes = _probes(_width(head, trained, constant), trained | constant)
    output = head(trained, constant, probes)
    if output.projected is not probes:
        # No features are known whose projection is the identity, so raw logits must not depend on the logits.
        probes = _probes(output.projected.shape[-1], trained | constant)
        output = HeadOutput(output.logits[:0], probes)
    raw = head.raw_logits(trained, constant, output)
    if len(raw) != len(probes):
        raise Misconfigured(
            f"head {type(head).__name__} projects features, but its raw_logits do not depend on `projected` alone. "
            f"Give the head a method raw_logits, or leave out the metrics of class vectors."
        )
    return (raw[:-1] - raw[-1]).mT


def _of_head(tree: Tree) -> Tree:
    return {name: leaf.detach().to(torch.float64) for name, leaf in tree.items() if not name.startswith(_BODY)}


def _width(head: Head, params: Tree, fixed: Tree) -> int:
    """Width of a head's features: the smallest size of its tensors with which the head runs on zeros."""
    sizes = {size for leaf in (*params.values(), *fixed.values()) for size in leaf.shape}
    # On the CPU, because the meta device, which needs no memory, would import torch's compiler for a second.
    trained, constant = (tree_map(lambda leaf: torch.zeros(leaf.shape), tree) for tree in (params, fixed))
    for size in sorted(sizes):
        try:
            head(trained, constant, torch.zeros(1, size))
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
"""The measured model's class vectors, added once for every sample: `total`/`count` are exactly the vectors."""


def angle_matrix(vectors: Tensor) -> Tensor:
    """Angles [n, n] in degrees between all `vectors [n, dim]`; the angle with a zero vector is 90."""
    units = normalise(vectors)
    return torch.rad2deg((units @ units.mT).clamp(-1, 1).acos())


def angle(a: Tensor, b: Tensor) -> Tensor:
    """Angle in degrees along the last axis, exact near 0 and 180; 90 with a zero vector."""
    u, v = normalise(a), normalise(b)
    difference, total = (u - v).norm(dim=-1), (u + v).norm(dim=-1)
    return torch.where(difference + total > 0, torch.rad2deg(2 * torch.atan2(difference, total)), RIGHT_ANGLE)


def pair_shares(members: Tensor) -> Tensor:
    """Weights [n, n] of pairs in a mean over all pairs of `members [n]`, which is 1 for members and 0 otherwise.

    Each pair is counted once, above the diagonal. Without pairs all weights are 0.
    """
    pairs = torch.outer(members, members).triu(1)
    return pairs / pairs.sum().clamp(min=1)


def mean_pair_cosine(square: Tensor, squares: Tensor, number: Tensor) -> Tensor:
    """Mean of the cosines of all pairs i≠j of n = `number` vectors, from their unit vectors u.

    (‖Σu‖² − Σ‖u‖²)/(n(n − 1)) with ‖Σu‖² = `square` and Σ‖u‖² = `squares`. A zero vector has u = 0, so its cosine with
    all others is 0. NaN without pairs.
    """
    pairs = number * (number - 1)
    return torch.where(pairs > 0, (square - squares) / pairs, math.nan)


def quotient(numerator: Tensor, denominator: Tensor) -> float:
    """A mean from its sums; NaN if nothing was counted."""
    return float(numerator / denominator) if denominator > 0 else math.nan
