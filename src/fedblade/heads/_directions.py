"""Directions: unit vectors and cosines that survive a zero vector."""

import torch
from torch import Tensor

FLOOR = 1e-12


def normalise(vectors: Tensor, dim: int = -1) -> Tensor:
    """Unit vectors x / max(‖x‖, 1e-12) along `dim`.

    A vector shorter than the floor has no direction to move in: its gradient is 0, where the formula's own would be
    up to 1e12 times the incoming one.
    """
    length = torch.linalg.vector_norm(vectors, dim=dim, keepdim=True)
    scaled = vectors / length.clamp_min(FLOOR)
    return torch.where(length > FLOOR, scaled, scaled.detach())


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of `a` and `b` along the last axis, 0 where either is a zero vector."""
    return (normalise(a) * normalise(b)).sum(-1)
