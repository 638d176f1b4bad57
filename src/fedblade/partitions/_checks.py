"""Checks of a partitioner's arguments: every error is one line that says what to change."""

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from fedblade.core.errors import Misconfigured

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Column: TypeAlias = Sequence[Any] | NDArray[Any] | torch.Tensor

# A label above this is surely an identifier and no class; a table with so many classes would exhaust the memory.
MAX_INFERRED_CLASSES = 1_000_000


def as_whole(name: str, value: object, at_least: int) -> int:
    """`value` as an int of at least `at_least`; `name` is the knob's name in the message."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < at_least:
        raise Misconfigured(f"{name}={value!r} is not usable. Give a whole number of at least {at_least}.")
    return number


def as_flag(name: str, value: object) -> None:
    """Refuse values other than True and False."""
    if not isinstance(value, bool | np.bool_):
        raise Misconfigured(f"{name}={value!r} is not a switch. Give {name}=true or {name}=false.")


def as_number(name: str, value: object, above: float, at_most: float, hint: str) -> None:
    """Refuse values other than numbers in (above, at_most]; `hint` says what to give instead."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number or not above < value <= at_most:  # type: ignore[operator]
        raise Misconfigured(f"{name}={value!r} is not usable. Give {hint}.")


def as_alpha(alpha: object) -> None:
    """Refuse values that are no concentration of a Dirichlet distribution."""
    # Below 1e-100 the logarithms of the draws overflow. Far above that, every class already goes to a single client.
    as_number("alpha", alpha, 1e-100, 1e300, "a finite concentration above 0, e.g. alpha=0.1")


def as_column(name: str, values: Column) -> NDArray[Any]:
    """A list, array or tensor as a non-empty one-dimensional NumPy array."""
    try:
        array = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    except ValueError:
        raise Misconfigured(f"{name} are ragged. Give one value per sample in a flat list or array.") from None
    if array.ndim != 1:
        raise Misconfigured(
            f"{name} have shape {list(array.shape)}, expected one dimension. Give one value per sample."
        )
    if array.size == 0:
        raise Misconfigured(f"{name} are empty, expected one value per sample. Check that the data set was loaded.")
    return array


def as_labels(name: str, labels: Column, num_classes: int | None) -> tuple[Ints, int]:
    """Labels as int64 in 0..C-1, and C: `num_classes` if given, else the largest label plus one."""
    array = as_column(name, labels)
    if array.dtype.kind not in "iu":
        raise Misconfigured(
            f"{name} have type {array.dtype}, expected integers. Number the classes 0, 1, … and convert first."
        )
    low, high = int(array.min()), int(array.max())
    if low < 0:
        raise Misconfigured(f"{name} contain {low}, expected classes from 0 on. Renumber or drop these samples.")
    if num_classes is None:
        if high >= MAX_INFERRED_CLASSES:
            raise Misconfigured(f"{name} contain {high}, too large for a class. Number the classes 0, 1, … instead.")
        return array.astype(np.int64, copy=False), high + 1
    known = as_whole("num_classes", num_classes, 1)
    if high >= known:
        raise Misconfigured(
            f"{name} contain {high}, but num_classes={known} allows 0 to {known - 1}. "
            f"Raise num_classes or renumber the classes."
        )
    return array.astype(np.int64, copy=False), known


def as_groups(name: str, groups: Column, num_samples: int) -> NDArray[Any]:
    """Group ids (numbers or strings), one per sample."""
    array = as_column(name, groups)
    if array.dtype.kind == "O":
        if not all(isinstance(value, str) for value in array):
            raise Misconfigured(f"{name} mix types or have gaps. Give one number or one string per sample.")
        array = array.astype(str)
    if len(array) != num_samples:
        raise Misconfigured(f"{name} have {len(array)} entries for {num_samples} samples. Give one group per sample.")
    return array
