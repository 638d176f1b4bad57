"""Checks of feature sets: what was given, what was expected, what to do."""

import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured


def check_features(features: Tensor) -> None:
    """Refuse features that are no floating-point matrix; only shape and dtype are read."""
    if features.dim() != 2:
        raise Misconfigured(
            f"features of shape {tuple(features.shape)} given; [samples, dim] expected. "
            f"Flatten or pool further axes; a single vector has no spectrum."
        )
    if not features.is_floating_point():
        raise Misconfigured(
            f"features of dtype {features.dtype} given; floating point expected. Convert with .float()."
        )


def check_samples(features: Tensor) -> None:
    """Refuse features of fewer than two samples."""
    check_features(features)
    if len(features) < 2:
        raise Misconfigured(f"{len(features)} samples given; at least 2 expected. Gather features of more samples.")


def check_row_entries(name: str, given: Tensor, features: Tensor) -> None:
    """Refuse labels or masks that do not have one entry per sample."""
    if given.shape != features.shape[:1]:
        raise Misconfigured(
            f"{name} of shape {tuple(given.shape)} given; {list(features.shape[:1])} expected. "
            f"Pass one entry for each row of the features."
        )


def check_class_numbers(labels: Tensor) -> None:
    """Refuse labels that are no class numbers; the values are read."""
    if labels.dtype != torch.int64:
        raise Misconfigured(f"labels of dtype {labels.dtype} given; torch.int64 expected. Convert with .long().")
    lowest = int(labels.min())
    if lowest < 0:
        raise Misconfigured(f"label {lowest} given; classes count from 0. Leave out the samples without a class.")
