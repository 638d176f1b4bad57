"""Padding: rows whose mask is 0 change neither a value nor a gradient, whatever they hold."""

import torch
from torch import Tensor


def real_rows(rows: Tensor, mask: Tensor | None) -> Tensor:
    """`rows [batch, ...]` with padded rows replaced by zeros; labels of padding thus become a valid class."""
    if mask is None:
        return rows
    keep = (mask != 0).reshape(mask.shape + (1,) * (rows.dim() - mask.dim()))
    return torch.where(keep, rows, torch.zeros_like(rows))


def mean_of_real(values: Tensor, mask: Tensor | None) -> Tensor:
    """Mean of `values [batch]` over real rows; with no real row a zero that keeps its graph."""
    if mask is None:
        return values.mean()
    keep = mask != 0
    return torch.where(keep, values, torch.zeros_like(values)).sum() / keep.sum().clamp(min=1)
