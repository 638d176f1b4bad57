"""Padding: rows with mask 0 change neither values nor gradients, whatever numbers they contain."""

import torch
from torch import Tensor


def real_rows(rows: Tensor, mask: Tensor | None) -> Tensor:
    """`rows [batch, ...]` with padding replaced by zeros; labels of padding become class 0, which is valid."""
    if mask is None:
        return rows
    keep = (mask != 0).reshape(mask.shape + (1,) * (rows.dim() - mask.dim()))
    return torch.where(keep, rows, torch.zeros_like(rows))


def mean_of_real(values: Tensor, mask: Tensor | None) -> Tensor:
    """Mean of `values [batch]` over real rows; without real rows it is a 0 that has a gradient."""
    if mask is None:
        return values.mean()
    keep = mask != 0
    return torch.where(keep, values, torch.zeros_like(values)).sum() / keep.sum().clamp(min=1)
