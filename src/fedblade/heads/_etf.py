"""Simplex equiangular tight frames as fixed class vectors, and the heads that have them."""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import heads
from fedblade.core.streams import Stream, Streams
from fedblade.core.tree import Tree
from fedblade.core.views import Head, HeadOutput, HeadTensors
from fedblade.heads._affine import draw_affine
from fedblade.heads._directions import normalise
from fedblade.heads._scale import Scale


def simplex_etf(dim: int, num_classes: int, seed: int = 0, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Unit vectors [dim, num_classes] at equal angles, cos = -1/(C - 1), in a random orientation.

    V = sqrt(C/(C - 1))·Q·(I - 11ᵀ/C) with QᵀQ = I (FedETF, Eq. 3; FedBlade, Eq. 7). V is computed in float64 from the
    stream `etf` of `seed`, then cast. `dim` must be at least `num_classes - 1`.

    Deviation: the authors' code orthogonalises a uniform draw; here a normal draw gives every orientation equal chance.
    """
    return draw_simplex_etf(dim, num_classes, Streams(seed).numpy(Stream.ETF)).to(dtype)


def draw_simplex_etf(dim: int, num_classes: int, generator: np.random.Generator) -> Tensor:
    """The simplex ETF in float64, from a given generator."""
    if num_classes < 2:
        raise Misconfigured(f"a simplex ETF needs at least 2 classes, {num_classes} given.")
    if dim < num_classes - 1:
        raise Misconfigured(
            f"a simplex ETF of {num_classes} classes needs at least {num_classes - 1} dimensions, {dim} given. "
            f"Widen the features or put a projector before the head."
        )
    rank = min(dim, num_classes)
    basis = orthonormal_columns(generator.standard_normal((dim, rank)))
    centred = np.eye(num_classes) - 1.0 / num_classes
    corners = centred if rank == num_classes else _helmert(num_classes)
    return torch.from_numpy(math.sqrt(num_classes / (num_classes - 1)) * (basis @ corners))


def orthonormal_columns(matrix: np.ndarray) -> np.ndarray:
    """Orthonormal columns; the signs of R are fixed so that the result is uniform over orientations."""
    q, r = np.linalg.qr(matrix)
    return np.asarray(q * np.sign(np.diag(r)))


def _helmert(size: int) -> np.ndarray:
    """Orthonormal rows [size - 1, size], each orthogonal to the all-ones vector."""
    rows = np.tril(np.ones((size - 1, size)), k=0)
    order = np.arange(1, size)
    rows[np.arange(size - 1), order] = -order
    return np.asarray(rows / np.sqrt(order * (order + 1.0))[:, None])


@heads.register("etf_direct", paper="arXiv:2405.18972, arXiv:2406.02355")
@dataclass(frozen=True)
class EtfDirectHead(Head):
    """Logits length·Vᵀh with a fixed simplex ETF V as wide as the features (FedGELA, Dot-Regression, FedDr+).

    h is z, or z/‖z‖ with `normalize`; `length` is the length of the class vectors, sqrt(E_W) in FedGELA.
    """

    normalize: bool = False
    length: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.length < float("inf"):
            raise Misconfigured(
                f"length={self.length} must be positive and finite: it is the length of the class vectors."
            )

    def init(self, dim: int, num_classes: int, streams: Streams) -> HeadTensors:
        """Class vectors [dim, classes] from the stream `etf`; nothing is trained."""
        return HeadTensors({}, {"etf": draw_simplex_etf(dim, num_classes, streams.numpy(Stream.ETF)).to(torch.float32)})

    def __call__(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:  # noqa: ARG002 - nothing is trained
        """Products with class vectors of the given length."""
        vectors = normalise(features) if self.normalize else features
        return HeadOutput(self.length * (vectors @ fixed["etf"]), features)

    def raw_logits(self, params: Tree, fixed: Tree, output: HeadOutput) -> Tensor:  # noqa: ARG002
        """Products Vᵀz of unit class vectors with the features, which are not normalised."""
        return output.projected @ fixed["etf"]


@heads.register("etf_projector", paper="arXiv:2303.10058, Eq. 4 and 5")
@dataclass(frozen=True)
class EtfProjectorHead(Head):
    """Logits s·Vᵀu with u = û/‖û‖ and û = A z + a: a trained projector before a fixed simplex ETF (FedETF, Eq. 5).

    `proj_dim` "auto" takes as many dimensions as classes. Without `projector` (an ablation) V has the width of the
    features and u = z/‖z‖. Without `bias` a = 0 and û = A z.

    Deviation: after each step s is raised to `scale.min` if it is below, and such steps are counted; "none" is the
    paper's rule.
    """

    proj_dim: int | Literal["auto"] = "auto"
    projector: bool = True
    bias: bool = True
    scale: Scale = field(default_factory=Scale)

    def __post_init__(self) -> None:
        if self.proj_dim != "auto" and not self.projector:
            raise Misconfigured(
                f"proj_dim={self.proj_dim} needs the projector. Set projector=true or leave proj_dim='auto'."
            )

    def init(self, dim: int, num_classes: int, streams: Streams) -> HeadTensors:
        """Projector with `torch.nn.Linear`'s distribution, initial scale, class vectors from the stream `etf`."""
        space = (num_classes if self.proj_dim == "auto" else self.proj_dim) if self.projector else dim
        etf = draw_simplex_etf(space, num_classes, streams.numpy(Stream.ETF)).to(torch.float32)
        params: Tree = {}
        if self.projector:
            weight, bias = draw_affine(dim, space, streams.torch(Stream.INIT, 1))
            params |= {"projector.weight": weight} | ({"projector.bias": bias} if self.bias else {})
        trained, fixed = self.scale.tensors()
        return HeadTensors(params | trained, {"etf": etf} | fixed)

    def __call__(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:
        """Scaled cosines, and the projection before normalisation."""
        projected = self.project(params, features)
        scale = self.scale.value(params, fixed)
        return HeadOutput(scale * (normalise(projected) @ fixed["etf"]), projected)

    def project(self, params: Tree, features: Tensor) -> Tensor:
        """A z + a, or z without a projector."""
        if not self.projector:
            return features
        return functional.linear(features, params["projector.weight"], params["projector.bias"] if self.bias else None)

    def raw_logits(self, params: Tree, fixed: Tree, output: HeadOutput) -> Tensor:  # noqa: ARG002
        """Products Vᵀû of the class vectors with the projection before normalisation."""
        return output.projected @ fixed["etf"]

    def constrain(self, params: Tree) -> dict[str, Tensor]:
        """Clamp the scale to its lower bound in place and say whether it was below."""
        return self.scale.constrain(params)
