"""Parts of a batch that passes need: which samples are real, their classes, and sums over the samples of a class."""

from typing import Any

import torch
from torch import Tensor

from fedblade.core.tree import Tree
from fedblade.core.views import StepView


def real_samples(view: StepView) -> Tensor:
    """Whether each sample is real, [batch]; other samples are padding with arbitrary values."""
    return torch.ones_like(view.labels, dtype=torch.bool) if view.mask is None else view.mask != 0


def members(labels: Tensor, num_classes: int, real: Tensor) -> Tensor:
    """1 if a sample is real and of the class, else 0: [batch, classes] in float64."""
    classes = torch.arange(num_classes, device=labels.device)
    return ((labels[:, None] == classes) & real[:, None]).to(torch.float64)


def class_sums(view: StepView, vectors: Tensor) -> Tree:
    """Samples per class and sums of their `vectors [batch, dim]`: `count [classes]`, `sum [classes, dim]`."""
    real = real_samples(view)
    of_class = members(view.labels, view.logits.shape[-1], real)
    return {"count": of_class.sum(0), "sum": of_class.mT @ torch.where(real[:, None], vectors.detach().double(), 0.0)}


def as_lists(values: Tensor) -> Any:
    """Nested lists of plain numbers, with None in place of NaN."""
    if values.dim() > 1:
        return [as_lists(row) for row in values]
    return [None if value != value else value for value in values.tolist()]
