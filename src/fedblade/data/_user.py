"""Arrays and torch datasets of the user as a `Dataset`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._dataset import Array, Dataset, Part
from fedblade.data._user_datasets import Items, RandomItems, read_items, reading_notes
from fedblade.data._user_inputs import input_layout
from fedblade.data._user_labels import Numbering, number_labels

NAMES = ("x_train", "y_train", "x_test", "y_test")
LABELS = NAMES[1::2]
IN_NPZ = "arrays in an .npz file"
"""The `source` of a data set that was read from an .npz file."""


def as_dataset(given: object, number: Callable[[Array, Array], Numbering] = number_labels) -> Dataset:
    """A user's data as a `Dataset`, from a `Dataset`, four arrays (x, y, x_test, y_test) or two torch datasets.

    Unsigned bytes of shape [n, height, width] or [n, channels, height, width] are pixels and are divided by 255. Other
    inputs, also tables of bytes, are used as they are. Pictures may have their channels last. Labels that are not
    0, 1, 2, … are numbered in ascending order. A torch dataset whose transforms draw random numbers is read again in
    every epoch. `Dataset.notes` says what was assumed. `number` turns the labels of both parts into class numbers.
    """
    if isinstance(given, Dataset):
        return given
    (x, y, x_test, y_test), items = _four_arrays(given)
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
        class_names=None if classes.values is None else tuple(map(str, classes.values)),
        label_values=classes.values,
        given_shape=None if layout.given == layout.stored else layout.given,
        value_range=_range(x, x_test),
        reader=RandomItems(items[0], layout) if items is not None and items[0].is_random else None,
        notes=(*layout.notes, *classes.notes, *(reading_notes(*items) if items else ())),
    )


def _four_arrays(given: object) -> tuple[tuple[Array, Array, Array, Array], tuple[Items, Items] | None]:
    """The four arrays in the byte order of the machine, and the items of the torch datasets they were read from."""
    items: Sequence[Any] = given if isinstance(given, tuple | list) else ()
    if len(items) == 2 and all(hasattr(item, "__len__") and hasattr(item, "__getitem__") for item in items):
        train, test = (read_items(dataset) for dataset in items)
        x, x_test = (as_array("inputs", part.inputs) for part in (train, test))
        return (x, train.labels, x_test, test.labels), (train, test)
    if len(items) == 4:
        x, y, x_test, y_test = (as_array(name, item) for name, item in zip(NAMES, items, strict=True))
        return (x, y, x_test, y_test), None
    raise Misconfigured(
        f"dataset is a {type(given).__name__}; expected a name, a fedblade.data.Dataset, four arrays "
        f"(x, y, x_test, y_test) or two torch datasets (train, test)."
    )


def as_array(name: str, given: Any) -> Array:
    """Numbers that a user gave, as an array in the byte order of the machine."""
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise Misconfigured(f"{name} is a {type(given).__name__} that is no array: {reason}.") from error
    if array.dtype.kind not in "biuf":
        advice = (
            "Number the labels: np.unique(labels, return_inverse=True)[1], over training and test labels together."
            if name in LABELS
            else "Give the inputs as numbers."
        )
        raise Misconfigured(f"{name} has type {array.dtype}; expected integers or real numbers. {advice}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _range(*parts: Array) -> tuple[float, float] | None:
    """The smallest and the largest value of all parts."""
    parts = tuple(part for part in parts if part.size)
    return (min(float(part.min()) for part in parts), max(float(part.max()) for part in parts)) if parts else None
