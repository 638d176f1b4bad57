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


def number_labels(given: Array, given_test: Array) -> Numbering:
    """Class numbers from the labels of both parts together.

    Names are numbered in sorted order. Other labels are class numbers if the lowest is 0 and at least half of the
    numbers up to the highest occur; numbers that do not occur are classes without samples. All other numbers are
    numbered in ascending order.
    """
    if "U" in (given.dtype.kind, given_test.dtype.kind):
        return _number_names(given, given_test)
    train, test = as_labels(given), as_labels(given_test)
    values = np.union1d(train, test)
    if len(values) == 0:
        return Numbering(train, test, 2)
    _check_values(values, len(train) + len(test))
    notes = _note_on_test_labels(np.setdiff1d(test, train)) if len(train) and len(test) else ()
    highest = int(values[-1])
    if values[0] == 0 and 2 * len(values) >= highest + 1:
        missing = np.setdiff1d(np.arange(highest + 1), values)
        return Numbering(train, test, highest + 1, notes=_note_on_gaps(highest, missing) + notes)
    numbered = (
        f"labels: {_values_as_text(values)} are numbered 0 to {len(values) - 1} in ascending order for training; "
        f"predict gives the original labels"
    )
    originals = tuple(int(value) for value in values)
    return Numbering(
        np.searchsorted(values, train), np.searchsorted(values, test), len(values), originals, (numbered, *notes)
    )


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


def _number_names(given: Array, given_test: Array) -> Numbering:
    """Class numbers from names of classes, in the order in which Python sorts them."""
    if not given.dtype.kind == given_test.dtype.kind == "U" or given.ndim != 1 or given_test.ndim != 1:
        raise Misconfigured(
            f"training labels have shape {given.shape} and type {given.dtype}, test labels {given_test.shape} and "
            f"{given_test.dtype}; expected one name for each sample in both. Convert one of them."
        )
    values, samples = np.union1d(given, given_test), len(given) + len(given_test)
    if any(not name.strip() for name in values):
        raise Misconfigured(
            "some labels are empty; expected the name of a class for each sample. Leave samples without a label out."
        )
    if len(values) > max(2, samples // 2):
        raise Misconfigured(
            f"{samples} samples have {len(values)} different labels; expected several samples of a class. Give the "
            f"name of the class for each sample."
        )
    note = (
        f"labels: {_values_as_text(values)} are numbered 0 to {len(values) - 1} in sorted order for training; predict "
        f"gives the names"
    )
    train, test = (np.searchsorted(values, part).astype(np.int64) for part in (given, given_test))
    only_test = _note_on_test_labels(np.setdiff1d(given_test, given)) if len(given) and len(given_test) else ()
    return Numbering(train, test, len(values), tuple(map(str, values)), (note, *only_test))


def _check_values(values: Labels, samples: int) -> None:
    """Refuse labels that are no classes: marks of missing labels, numbers of patients, measured values."""
    if values[0] < 0 and values.tolist() != [-1, 1]:
        raise Misconfigured(
            f"labels go from {values[0]} to {values[-1]}; expected 0 to {len(values) - 1}, or only -1 and 1. Leave "
            f"samples without a label out, or renumber the labels from 0."
        )
    all_apart = samples >= _MANY and len(values) > 0.9 * samples
    if all_apart or (len(values) > max(2, samples // 2) and int(values[-1]) >= samples):
        raise Misconfigured(
            f"{samples} samples have {len(values)} different labels up to {values[-1]}; expected a class for each "
            f"sample, and several samples of a class. Give class labels."
        )


def _note_on_test_labels(values: Array) -> tuple[str, ...]:
    return (f"labels: {_values_as_text(values)} occur only in the test samples",) if len(values) else ()


def _note_on_gaps(highest: int, missing: Labels) -> tuple[str, ...]:
    if len(missing) == 0:
        return ()
    return (
        f"labels: 0 to {highest} are taken as {highest + 1} classes, of which {_values_as_text(missing)} have no "
        f"samples; renumber the labels if these are no classes",
    )


def _values_as_text(values: Array) -> str:
    """The values, or the first and the last of many."""
    shown: Sequence[object] = values.tolist()
    if len(shown) > _SHOWN:
        shown = [*shown[: _SHOWN // 2], "…", shown[-1]]
    return ", ".join(map(str, shown))
