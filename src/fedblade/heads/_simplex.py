"""Simplex equiangular tight frames: unit vectors at equal angles, drawn from a generator or along the axes."""

import math

import numpy as np
import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.streams import Stream, Streams
from fedblade.heads._directions import FLOOR

MOST_DRAWN = 1000
"""Up to so many classes the orientation is that of a normal draw. Its cost grows with the cube of the classes."""
_ROWS = 64
"""Rows of a large frame that are computed at a time."""


def simplex_etf(dim: int, num_classes: int, seed: int = 0, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Unit vectors [dim, num_classes] at equal angles, cos = -1/(C - 1), in a random orientation.

    V = sqrt(C/(C - 1))·Q·(I - 11ᵀ/C) with QᵀQ = I (FedETF, Eq. 3; FedBlade, Eq. 7). V is computed in float64 from the
    stream `etf` of `seed`, then cast. `dim` must be at least `num_classes - 1`.

    Deviations: the authors' code orthogonalises a uniform draw; here a normal draw gives every orientation equal
    chance. With more than 1,000 classes the cost of a draw, which grows with the cube of the classes, would be too
    high: there Q has columns of an orthonormal cosine transform in random order, and its rows have random signs.
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
    if num_classes > MOST_DRAWN:
        return torch.from_numpy(_cosine_frame(dim, num_classes, generator))
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


def _cosine_frame(dim: int, num_classes: int, generator: np.random.Generator) -> np.ndarray:
    """A simplex ETF from vectors of a cosine transform; the cost grows with the number of its entries.

    Column k of the transform is cos(π(2j + 1)k/(2·size)), j = 0, 1, …; columns are orthogonal, and all but the first
    sum to 0. With `dim` of at least `num_classes`, classes are columns and are centred. With one dimension less,
    classes are places j and the dimensions are the columns that sum to 0.
    """
    signs = np.where(generator.random(dim) < 0.5, -1.0, 1.0)
    size = max(dim, num_classes)
    order, places = generator.permutation(size), np.arange(size)
    rows, columns = (2 * places + 1, order[:num_classes]) if dim >= num_classes else (places[1:], 2 * order + 1)
    table = math.sqrt(2 / size) * np.cos(np.arange(4 * size) * (math.pi / (2 * size)))
    length = math.sqrt(num_classes / (num_classes - 1))
    frame = np.empty((dim, num_classes))
    for start in range(0, dim, _ROWS):
        part = slice(start, start + _ROWS)
        waves = frame[part]
        np.take(table, np.outer(rows[part], columns) % (4 * size), out=waves, mode="clip")
        if dim >= num_classes:
            waves[:, columns == 0] /= math.sqrt(2)
            waves -= waves.mean(axis=1, keepdims=True)
        waves *= (length * signs[part])[:, None]
    return frame


def draw_signs(num_classes: int, generator: np.random.Generator) -> Tensor:
    """Random signs [num_classes] that stand for a simplex ETF along the axes; see `class_vectors`."""
    return torch.from_numpy(np.where(generator.random(num_classes) < 0.5, -1.0, 1.0))


def is_signs(etf: Tensor) -> bool:
    """Whether a head's `etf` is the signs of a simplex ETF along the axes, and not the class vectors themselves."""
    return etf.dim() == 1


def class_vectors(etf: Tensor) -> Tensor:
    """The class vectors [dim, classes] of a head's `etf`.

    Signs σ [classes] stand for V = sqrt(C/(C - 1))·diag(σ)·(I - 11ᵀ/C).
    """
    if not is_signs(etf):
        return etf
    size = etf.shape[0]
    centred = torch.eye(size, dtype=etf.dtype, device=etf.device) - 1.0 / size
    return _length(size) * etf[:, None] * centred


def class_products(vectors: Tensor, etf: Tensor) -> Tensor:
    """Products [batch, classes] of `vectors [batch, dim]` with the class vectors of `etf`.

    With signs the cost is that of one sweep over `vectors`.
    """
    if not is_signs(etf):
        return vectors @ etf
    turned = vectors * etf
    return _length(etf.shape[0]) * (turned - turned.mean(-1, keepdim=True))


def own_cosines(points: Tensor, weight: Tensor, bias: Tensor | None, etf: Tensor) -> Tensor:
    """Cosine [classes] of W p_c + a with the class vector v_c, for `points [classes, dim]`; 0 for a zero vector.

    `weight [classes, dim]` W and `bias [classes]` a are those of a projector and `etf` the signs of an ETF along the
    axes. Neither the projected points nor the class vectors are formed: the length of W p + a follows from WᵀW, Wᵀa
    and aᵀa, so that the cost grows with the classes and not with their square.
    """
    # <q_c, v_c> needs one entry of q_c and the sum of its signed entries.
    own, total, squares = (points * weight).sum(-1), points @ (etf @ weight), ((points @ (weight.mT @ weight)) * points)
    squared = squares.sum(-1)
    if bias is not None:
        own, total = own + bias, total + etf @ bias
        squared = squared + 2 * (points @ (bias @ weight)) + bias @ bias
    has_length = squared > FLOOR**2
    length = torch.where(has_length, squared, torch.ones_like(squared)).sqrt()
    product = _length(etf.shape[0]) * (etf * own - total / etf.shape[0])
    return torch.where(has_length, product / length, torch.zeros_like(product))


def _length(num_classes: int) -> float:
    return math.sqrt(num_classes / (num_classes - 1))
