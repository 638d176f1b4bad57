"""Four arrays of a user as a `Dataset`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._dataset import Dataset, Part
from fedblade.data._source import Array
from fedblade.data._user_datasets import Items, RandomItems, reading_notes
from fedblade.data._user_inputs import input_layout
from fedblade.data._user_labels import Numbering, number_labels

NAMES = ("x_train", "y_train", "x_test", "y_test")
"""The names of the arrays in an .npz file."""
LABELS = NAMES[1::2]
_WIDEST = 8
"""Bytes of the widest numbers that torch has."""
IN_NPZ = "arrays in an .npz file"
"""The `source` of a data set that was read from an .npz file."""


def arrays_dataset(
    arrays: Sequence[Array],
    number: Callable[[Array, Array], Numbering] = number_labels,
    items: tuple[Items, Items] | None = None,
) -> Dataset:
    """The data set of the arrays x, y, x_test, y_test; `items` are the torch datasets that they were read from."""
    x, y, x_test, y_test = arrays
    if x.dtype != x_test.dtype:
        raise Misconfigured(
            f"training inputs are {x.dtype} and test inputs {x_test.dtype}; expected one type. Convert one of them."
        )
    classes, layout = number(y, y_test), input_layout(x)
    return Dataset(
        "arrays",
        Part(layout.store(x), classes.train),
        Part(layout.store(x_test), classes.test),
        classes.num_classes,
        unit=layout.unit,
        class_names=classes.names if classes.values is None else tuple(map(str, classes.values)),
        label_values=classes.values,
        given_shape=None if layout.given == layout.stored else layout.given,
        value_range=_range(x, x_test),
        reader=RandomItems(items[0], layout) if items is not None and items[0].is_random else None,
        notes=(*layout.notes, *classes.notes, *(reading_notes(*items) if items else ())),
    )


def as_array(name: str, given: Any) -> Array:
    """Numbers or names of classes that a user gave, as an array in the byte order of the machine."""
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:
        _refuse_ragged(name, given)
        reason = str(error).partition("\n")[0]
        raise Misconfigured(f"{name} is a {type(given).__name__} that is no array: {reason}.") from error
    if name in LABELS and _are_names(array):
        return array.astype(str)
    if array.dtype.kind not in "biuf":
        advice = "Give labels as whole numbers or as names." if name in LABELS else "Give the inputs as numbers."
        raise Misconfigured(f"{name} has type {array.dtype}; expected integers or real numbers. {advice}")
    if array.dtype.itemsize > _WIDEST:
        raise Misconfigured(f"{name} has type {array.dtype}; expected at most float64. Convert it: astype('float64').")
    if np.ma.is_masked(given):
        raise Misconfigured(f"{name} has masked values; expected a value everywhere. Fill them: filled(…).")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _refuse_ragged(name: str, given: Any) -> None:
    """Refuse rows of different lengths, such as texts as token ids, with the way to pad them."""
    if not isinstance(given, Sequence) or not all(isinstance(row, Sequence) or hasattr(row, "shape") for row in given):
        return
    lengths = [len(row) for row in given]
    if len(set(lengths)) > 1:
        raise Misconfigured(
            f"{name} has rows of {min(lengths)} to {max(lengths)} values; expected one length. Pad token ids with a "
            f"number that the model knows as padding, such as 0: [[*row, *[0] * ({max(lengths)} - len(row))] for row "
            f"in rows]."
        )


def _are_names(array: Array) -> bool:
    """Whether labels are text."""
    return array.dtype.kind in "UT" or (array.dtype == object and all(isinstance(label, str) for label in array.flat))


def _range(*parts: Array) -> tuple[float, float] | None:
    """The smallest and the largest value of all parts."""
    parts = tuple(part for part in parts if part.size)
    return (min(float(part.min()) for part in parts), max(float(part.max()) for part in parts)) if parts else None
