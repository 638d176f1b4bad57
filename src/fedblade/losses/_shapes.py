"""Checks of the shape and dtype of tensors. They read no values, so they work under `vmap` and need no transfer."""

import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured


def check_matrix(name: str, given: Tensor, axes: str = "[batch, dim]") -> None:
    """Refuse tensors that are no floating-point matrix."""
    if given.dim() != 2:
        raise Misconfigured(
            f"{name} of shape {tuple(given.shape)} given; {axes} expected. "
            f"Flatten or pool further axes, and use torch.func.vmap for a client axis."
        )
    if not given.is_floating_point():
        raise Misconfigured(f"{name} of dtype {given.dtype} given; floating point expected. Convert with .float().")


def check_shape(name: str, given: Tensor, expected: tuple[int, ...], advice: str) -> None:
    """Refuse any other shape."""
    if given.shape != expected:
        raise Misconfigured(f"{name} of shape {tuple(given.shape)} given; {list(expected)} expected. {advice}")


def check_labels(labels: Tensor, rows: Tensor) -> None:
    """Refuse labels that are not one class number per row."""
    check_shape("labels", labels, (rows.shape[0],), "Pass one class number for each row of the batch.")
    if labels.dtype != torch.int64:
        raise Misconfigured(f"labels of dtype {labels.dtype} given; torch.int64 expected. Convert with .long().")


def check_mask(mask: Tensor | None, rows: Tensor, name: str = "mask") -> None:
    """Refuse a mask that does not have one entry per row."""
    if mask is not None:
        check_shape(name, mask, (rows.shape[0],), "Pass 1 for each row that counts and 0 for the others.")


def check_counts(counts: Tensor, num_classes: int) -> None:
    """Refuse counts for another number of classes."""
    check_shape("counts", counts, (num_classes,), "Pass the client's number of samples of every class, 0 included.")


def check_etf(etf: Tensor, space: int, num_classes: int | None = None) -> None:
    """Refuse class vectors that are not the columns of a matrix [space, classes]."""
    shape = tuple(etf.shape)
    if len(shape) == 2 and shape[0] == space and num_classes in (None, shape[1]):
        return
    transposed = len(shape) == 2 and shape[1] == space and num_classes in (None, shape[0])
    advice = "Class vectors are columns: pass etf.mT." if transposed else "Make it with simplex_etf(dim, num_classes)."
    classes = "classes" if num_classes is None else num_classes
    raise Misconfigured(f"etf of shape {shape} given; [{space}, {classes}] expected. {advice}")
