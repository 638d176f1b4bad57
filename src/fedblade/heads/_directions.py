"""Unit vectors and cosines that are defined for zero vectors too."""

import torch
from torch import Tensor

FLOOR = 1e-12


def normalise(vectors: Tensor, dim: int = -1) -> Tensor:
    """Unit vectors x / max(‖x‖, 1e-12) along `dim`.

    A vector shorter than 1e-12 has no direction, so its gradient is 0; the formula would multiply the gradient by up to
    1e12.
    """
    length = torch.linalg.vector_norm(vectors, dim=dim, keepdim=True)
    scaled: Tensor = vectors / length.clamp_min(FLOOR)
    if not torch.is_grad_enabled():
        return scaled
    return torch.where(length > FLOOR, scaled, scaled.detach())


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of `a` and `b` along the last axis; 0 if one of them is a zero vector."""
    return (normalise(a) * normalise(b)).sum(-1)
