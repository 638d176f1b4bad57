"""Parts of a batch that passes need: which samples are real, their classes, and sums over the samples of a class."""

from typing import Any

import torch
from torch import Tensor

from fedblade.core.tree import Tree
from fedblade.core.views import StepView

MOST_CLASSES = 200
"""Up to this number of classes, work and tables may grow with the square of the number of classes."""


def real_samples(view: StepView) -> Tensor:
    """Whether each sample is real, [batch]; other samples are padding with arbitrary values."""
    return torch.ones_like(view.labels, dtype=torch.bool) if view.mask is None else view.mask != 0


def members(labels: Tensor, num_classes: int, real: Tensor) -> Tensor:
    """1 if a sample is real and of the class, else 0: [batch, classes] in float64."""
    classes = torch.arange(num_classes, device=labels.device)
    return ((labels[:, None] == classes) & real[:, None]).to(torch.float64)


def sums_by_class(labels: Tensor, num_classes: int, real: Tensor, *vectors: Tensor) -> tuple[Tensor, ...]:
    """The number of real samples of every class, [classes], then the sums of their `vectors`, each [classes, dim].

    Vectors of samples that are not real must be 0. For few classes a product with `members` is fast. For many it costs
    batch times classes times dim, so that on a CPU every vector is added to its class. On a GPU the order of such
    additions would change from run to run.
    """
    if num_classes <= MOST_CLASSES or labels.is_cuda:
        of_class = members(labels, num_classes, real)
        return of_class.sum(0), *(of_class.mT @ rows for rows in vectors)
    classes, ones = torch.where(real, labels, 0), real.to(torch.float64)
    return tuple(rows.new_zeros(num_classes, *rows.shape[1:]).index_add(0, classes, rows) for rows in (ones, *vectors))


def class_sums(view: StepView, vectors: Tensor) -> Tree:
    """Samples per class and sums of their `vectors [batch, dim]`: `count [classes]`, `sum [classes, dim]`."""
    real = real_samples(view)
    kept = torch.where(real[:, None], vectors.detach().double(), 0.0)
    count, total = sums_by_class(view.labels, view.logits.shape[-1], real, kept)
    return {"count": count, "sum": total}


def as_lists(values: Tensor) -> Any:
    """Nested lists of plain numbers, with None in place of NaN."""
    if values.dim() > 1:
        return [as_lists(row) for row in values]
    plain = values.tolist()
    return [None if value != value else value for value in plain] if bool(values.isnan().any()) else plain
