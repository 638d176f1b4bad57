"""Arrays and torch datasets of the user's as a `Dataset`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedblade.core.errors import Misconfigured
from fedblade.data._dataset import Array, Dataset, Part

NAMES = ("x_train", "y_train", "x_test", "y_test")
IN_NPZ = "arrays in an .npz file"
"""What a data set says of its source where it was read from such a file."""


def as_dataset(given: object) -> Dataset:
    """A user's data as a `Dataset`: one already, four arrays (x, y, x_test, y_test), or two torch datasets.

    Unsigned bytes are taken as pixels and divided by 255; everything else is used as it is. Pixels of shape
    [n, height, width] get a channel axis.
    """
    if isinstance(given, Dataset):
        return given
    x, y, x_test, y_test = _four(given)
    if x.dtype != x_test.dtype:
        raise Misconfigured(
            f"training inputs are {x.dtype} and test inputs {x_test.dtype}; expected one type. Convert one of them."
        )
    labels, test_labels = _as_labels(y), _as_labels(y_test)
    pixels = x.dtype == np.uint8
    if pixels and x.ndim == 3:
        x, x_test = x[:, None], x_test[:, None]
    classes = _count_classes(labels, test_labels)
    return Dataset("arrays", Part(x, labels), Part(x_test, test_labels), classes, unit=255.0 if pixels else 1.0)


def _four(given: object) -> tuple[Array, Array, Array, Array]:
    """The four arrays of what was given, in the machine's own byte order."""
    items: Sequence[Any] = given if isinstance(given, tuple | list) else ()
    if len(items) == 2 and all(hasattr(each, "__len__") and hasattr(each, "__getitem__") for each in items):
        (x, y), (x_test, y_test) = (_stack(each) for each in items)
        return x, y, x_test, y_test
    if len(items) == 4:
        x, y, x_test, y_test = (_as_array(name, each) for name, each in zip(NAMES, items, strict=True))
        return x, y, x_test, y_test
    raise Misconfigured(
        f"dataset is a {type(given).__name__}; expected a name, a fedblade.data.Dataset, four arrays "
        f"(x, y, x_test, y_test) or two torch datasets (train, test)."
    )


def _as_array(name: str, given: Any) -> Array:
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise Misconfigured(f"{name} is a {type(given).__name__} that makes no array: {reason}.") from error
    if array.dtype.kind not in "biuf":
        raise Misconfigured(f"{name} has type {array.dtype}; expected integers or real numbers.")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _stack(source: Any) -> tuple[Array, Array]:
    """Inputs and labels of a torch dataset, read item by item."""
    try:
        pairs = [(np.asarray(x), int(y)) for x, y in (source[i] for i in range(len(source)))]
        return _as_array("inputs", np.stack([x for x, _ in pairs])), np.asarray([y for _, y in pairs], dtype=np.int64)
    except (ValueError, TypeError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise Misconfigured(
            f"items of {type(source).__name__} are not (input, label) pairs of one shape: {reason}. "
            f"Give two torch datasets or four arrays (x, y, x_test, y_test)."
        ) from error


def _as_labels(labels: Array) -> npt.NDArray[np.int64]:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise Misconfigured(
            f"labels have shape {labels.shape} and type {labels.dtype}; expected one integer class per sample."
        )
    return labels.astype(np.int64)


def _count_classes(labels: npt.NDArray[np.int64], test_labels: npt.NDArray[np.int64]) -> int:
    """Classes from 0 to the highest label; more classes than samples mean labels that are no class numbers."""
    highest = int(max(labels.max(initial=0), test_labels.max(initial=0)))
    samples = len(labels) + len(test_labels)
    if highest >= max(samples, 2):
        raise Misconfigured(
            f"labels go up to {highest}, but there are only {samples} samples; expected classes 0, 1, 2, …. "
            f"Renumber the labels from 0."
        )
    return highest + 1
