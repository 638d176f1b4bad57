"""Labels of a user's data as class numbers 0, 1, 2, …, with notes on what was assumed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedblade.core.errors import Misconfigured
from fedblade.data._source import Array

Labels = npt.NDArray[np.int64]
_MANY = 50
"""Of so many samples several have one class."""
_SHOWN = 6
"""A note lists at most so many values."""


@dataclass(frozen=True)
class Numbering:
    """Class numbers of the training and of the test samples.

    `values[k]` is the user's label of class k; None if the labels are the class numbers, which may then have `names`.
    `notes` are for the user.
    """

    train: Labels
    test: Labels
    num_classes: int
    values: tuple[int, ...] | tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None


def as_labels(labels: Array) -> Labels:
    """Labels as int64, one per sample; other shapes and types are refused."""
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise Misconfigured(
            f"labels have shape {labels.shape} and type {labels.dtype}; expected one integer class per sample. "
            f"{_advice(labels)}"
        )
    return labels.astype(np.int64)


def _advice(labels: Array) -> str:
    """How to turn labels of another shape or type into one integer per sample."""
    if labels.ndim == 2 and labels.shape[1] > 1:
        return "Turn rows with a 1 at the class (one-hot) or with scores into classes: labels.argmax(1)."
    steps = ("" if labels.ndim == 1 else ".ravel()") + ("" if labels.dtype.kind in "iu" else ".astype(int)")
    if labels.ndim and labels.size == len(labels) and np.array_equal(labels, np.trunc(labels)):
        return f"Convert the labels: labels{steps}."
    return "Give one class for each sample; measured values and several labels per sample are no classes."


@dataclass(frozen=True)
class Classes:
    """The classes of labels: how many, and the label of each class if it is not the class number.

    `notes` are for the user.
    """

    count: int
    values: tuple[int, ...] | tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


def number_labels(given: Array, given_test: Array) -> Numbering:
    """Class numbers from the labels of both parts together, by the rule of `classes_of`."""
    train, test = of_one_kind(given, given_test)
    values = np.union1d(train, test)
    if len(values) == 0:
        return Numbering(as_labels(np.zeros(0, int)), as_labels(np.zeros(0, int)), 2)
    classes = classes_of(values, len(train) + len(test))
    notes = classes.notes
    if len(train) and len(test):
        notes += _note_on_test_labels(np.setdiff1d(test, train))
    if classes.values is None:
        return Numbering(train, test, classes.count, notes=notes)
    return Numbering(places_of(values, train), places_of(values, test), classes.count, classes.values, notes)


def classes_of(values: Array, samples: int) -> Classes:
    """The classes by the different labels of so many samples, in ascending order.

    Names are numbered in sorted order. Other labels are class numbers if the lowest is 0 and at least half of the
    numbers up to the highest occur; numbers that do not occur are classes without samples. All other numbers are
    numbered in ascending order.
    """
    if values.dtype.kind != "U" and values[0] < 0 and values.tolist() != [-1, 1]:
        raise Misconfigured(
            f"labels go from {values[0]} to {values[-1]}; expected 0 to {len(values) - 1}, or only -1 and 1. Leave "
            f"samples without a label out, or renumber the labels from 0."
        )
    check_are_classes(values, samples)
    numbered = f"labels: {values_as_text(values)} are numbered 0 to {len(values) - 1} in"
    if values.dtype.kind == "U":
        note = f"{numbered} sorted order for training; predict gives the names"
        return Classes(len(values), tuple(map(str, values)), (note,))
    highest = int(values[-1])
    if values[0] == 0 and 2 * len(values) >= highest + 1:
        return Classes(highest + 1, notes=_note_on_gaps(highest, np.setdiff1d(np.arange(highest + 1), values)))
    note = f"{numbered} ascending order for training; predict gives the original labels"
    return Classes(len(values), tuple(map(int, values)), (note,))


def check_are_classes(values: Array, samples: int) -> None:
    """Refuse the different labels of so many samples, ascending, if they are names or numbers of patients, say."""
    many = len(values) > max(2, samples // 2)
    if values.dtype.kind == "U":
        if many:
            raise Misconfigured(
                f"{samples} samples have {len(values)} different labels; expected several samples of a class. Give the "
                f"name of the class for each sample."
            )
        return
    all_apart = samples >= _MANY and len(values) > 0.9 * samples
    if all_apart or (many and int(values[-1]) >= samples):
        raise Misconfigured(
            f"{samples} samples have {len(values)} different labels up to {values[-1]}; expected a class for each "
            f"sample, and several samples of a class. Give class labels."
        )


def places_of(values: Array, labels: Array) -> Labels:
    """The number of each label: its place among the ascending values."""
    return np.searchsorted(values, labels).astype(np.int64)


def of_one_kind(given: Array, given_test: Array) -> tuple[Array, Array]:
    """Labels of both parts, checked: names or whole numbers in both, one for each sample."""
    if "U" not in (given.dtype.kind, given_test.dtype.kind):
        return as_labels(given), as_labels(given_test)
    if not given.dtype.kind == given_test.dtype.kind == "U" or given.ndim != 1 or given_test.ndim != 1:
        raise Misconfigured(
            f"training labels have shape {given.shape} and type {given.dtype}, test labels {given_test.shape} and "
            f"{given_test.dtype}; expected one name for each sample in both. Convert one of them."
        )
    if any(not name.strip() for part in (given, given_test) for name in np.unique(part)):
        raise Misconfigured(
            "some labels are empty; expected the name of a class for each sample. Leave samples without a label out."
        )
    return given, given_test


def number_by_names(names: tuple[str, ...], given: Array, given_test: Array) -> Numbering:
    """Labels that are numbers of named classes."""
    train, test = as_labels(given), as_labels(given_test)
    wrong = np.flatnonzero((train < 0) | (train >= len(names)))
    if len(wrong):
        raise Misconfigured(
            f"sample {wrong[0]} has the label {train[wrong[0]]}; expected 0 to {len(names) - 1}, the numbers of "
            f"{len(names)} named classes. Leave samples without a label out."
        )
    return Numbering(train, test, len(names), names=names)


def _note_on_test_labels(values: Array) -> tuple[str, ...]:
    return (f"labels: {values_as_text(values)} occur only in the test samples",) if len(values) else ()


def _note_on_gaps(highest: int, missing: Labels) -> tuple[str, ...]:
    if len(missing) == 0:
        return ()
    return (
        f"labels: 0 to {highest} are taken as {highest + 1} classes, of which {values_as_text(missing)} have no "
        f"samples; renumber the labels if these are no classes",
    )


def values_as_text(values: Array) -> str:
    """The values, or the first and the last of many."""
    shown: Sequence[object] = values.tolist()
    if len(shown) > _SHOWN:
        shown = [*shown[: _SHOWN // 2], "…", shown[-1]]
    return ", ".join(map(str, shown))
