"""Simplex equiangular tight frames: the class vectors of the fixed classifiers."""

import math

import numpy as np
import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.streams import Stream, Streams


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
    basis = _orthonormal(generator.standard_normal((dim, rank)))
    centred = np.eye(num_classes) - 1.0 / num_classes
    corners = centred if rank == num_classes else _helmert(num_classes)
    return torch.from_numpy(math.sqrt(num_classes / (num_classes - 1)) * (basis @ corners))


def _orthonormal(matrix: np.ndarray) -> np.ndarray:
    """Orthonormal columns; the signs of R are fixed so that the result is uniform over orientations."""
    q, r = np.linalg.qr(matrix)
    return np.asarray(q * np.sign(np.diag(r)))


def _helmert(size: int) -> np.ndarray:
    """Orthonormal rows [size - 1, size], each orthogonal to the all-ones vector."""
    rows = np.tril(np.ones((size - 1, size)), k=0)
    order = np.arange(1, size)
    rows[np.arange(size - 1), order] = -order
    return np.asarray(rows / np.sqrt(order * (order + 1.0))[:, None])
