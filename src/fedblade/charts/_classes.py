"""Accuracy by class, and class against class: which classes look alike and which are taken for which."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedblade.charts._arrays import (
    CLASS_ACCURACY,
    CONFUSION,
    COSINES,
    POOLED_CONFUSION,
    POOLED_COSINES,
    ClassTable,
    class_table,
    last_array,
    row_words,
)
from fedblade.charts._model import PERCENT, Axis, Chart, group_panel
from fedblade.charts._series import group_series
from fedblade.core.words import listing
from fedblade.results import MOST_NAMED, Group, Snapshots, StoredArray, Vector, coverage_sentence, snapshots

_BY_CLASS = (
    "Test accuracy of every class after the last round, sorted from worst to best for each method by itself. A flat "
    "line means that all classes are treated alike; a low left end means that some classes are hardly recognised."
)
_COSINES = (
    "Each cell is the cosine between the mean features of two classes, seen from the centre of all. The diagonal is 1 "
    "by definition. Ideally all other cells have the same value, {ideal:.2f} for {classes} classes; a blue cell off "
    "the diagonal is a pair of classes the model finds alike."
)
_CONFUSION = (
    "Each row is a true class and shows the classes that the model gives to its test samples; a row adds up to 100 %. "
    "The diagonal has the right answers. A mark off the diagonal is a frequent mistake, and a strong column is a class "
    "that the model gives too often."
)
_POOLED = (
    "There are too many classes for a cell each: the {classes} classes are pooled in the order of their numbers, and a "
    "row or column stands for {block} neighbouring classes."
)
_COSINES_POOLED = (
    "Each cell is the mean cosine between the mean features of a class of one block and a class of the other, seen "
    "from the centre of all; on the diagonal, of two different classes of the block. Ideally all cells have the same "
    "value, {ideal:.4f} for {classes} classes; a blue cell is a pair of blocks whose classes the model finds alike."
)
_CONFUSION_POOLED = (
    "Each row is a block of true classes and shows in which blocks the answers to its test samples lie; a row adds up "
    "to 100 %. The diagonal has the answers within the block, right ones and mistakes. A mark off the diagonal is a "
    "frequent mistake, and a strong column is a block that the model gives too often."
)
Squares = tuple[ClassTable, Snapshots, tuple[str, ...]]
"""Class against class over rounds, with the names of the rows."""
# Bytes of all stored maps of one kind, so that a hundred classes cost rounds and not megabytes.
_ROOM, _MOST_ROUNDS = 200_000, 20


@dataclass(frozen=True)
class ClassMaps:
    """A square of class against class for each group and shown round, of values in [-1, 1] if `signed`, else [0, 1].

    `row_names` are the names of the classes, or of the blocks of neighbouring classes where there are many classes.
    """

    name: str
    title: str
    across: str
    down: str
    signed: bool
    row_names: tuple[str, ...]
    shown: Snapshots
    reading: str


def class_chart(groups: Sequence[Group]) -> Chart | None:
    """The accuracy of classes at the last round, or None where no run has measured it."""
    series = [group_series(group, "classes", "class_accuracy") for group in groups]
    if not any(series):
        return None
    return Chart(
        name="by-class",
        title="Accuracy by class",
        about="Test accuracy of each class at the last round, classes of each method sorted from worst to best.",
        panel=group_panel(
            groups, series, Axis("class, worst first", whole=True), Axis("accuracy", "%", bounds=PERCENT)
        ),
        reading=f"{_BY_CLASS} {coverage_sentence(groups, series)}".strip(),
    )


def class_accuracies(groups: Sequence[Group]) -> tuple[tuple[str, ...], list[Vector | None]]:
    """The classes' names and their accuracies by group; no names unless all groups have the same number of classes."""
    accuracies = [last_array(group, CLASS_ACCURACY) for group in groups]
    lengths = {len(values) for values in accuracies if values is not None}
    return _class_names(groups, lengths.pop()) if len(lengths) == 1 else (), accuracies


def cosine_maps(groups: Sequence[Group]) -> ClassMaps | None:
    """Cosines between class means over rounds, or None where no run has measured them."""
    squares = _squares(groups, COSINES, POOLED_COSINES)
    if squares is None:
        return None
    table, shown, names = squares
    alike = [
        f"{names[c]} and {names[r]} for {label} ({value:.2f})" for label, value, r, c in _extremes(groups, squares)
    ]
    reading = _COSINES if table.block == 1 else f"{_POOLED} {_COSINES_POOLED}"
    reading = reading.format(ideal=-1 / max(1, table.classes - 1), classes=table.classes, block=table.block)
    sentences = (reading, _last_round("Most alike", alike), coverage_sentence(groups, shown.last))
    title, axis = "Cosines between class means", row_words("class", table.block)
    return ClassMaps("cosines", title, axis, axis, True, names, shown, " ".join(filter(None, sentences)))


def confusion_maps(groups: Sequence[Group]) -> ClassMaps | None:
    """Answers by true class over rounds, or None where no run has measured them."""
    squares = _squares(groups, CONFUSION, POOLED_CONFUSION)
    if squares is None:
        return None
    table, shown, names = squares
    mistakes = [
        f"{names[r]} taken for {names[c]} by {label} ({100 * share:.1f} %)"
        for label, share, r, c in _extremes(groups, squares)
        if share > 0
    ]
    reading = _CONFUSION if table.block == 1 else f"{_POOLED} {_CONFUSION_POOLED}"
    reading = reading.format(classes=table.classes, block=table.block)
    sentences = (reading, _last_round("Most frequent mistake", mistakes), coverage_sentence(groups, shown.last))
    across, down = row_words("answer", table.block), row_words("true class", table.block)
    title = "Confusion of classes"
    return ClassMaps("confusion", title, across, down, False, names, shown, " ".join(filter(None, sentences)))


def strongest(values: Vector | None, side: int) -> tuple[float, int, int] | None:
    """The largest value off the diagonal with its row and column."""
    cells = ((value, *divmod(at, side)) for at, value in enumerate(values or ()) if value is not None)
    return max(((value, row, column) for value, row, column in cells if row != column), default=None)


def rounds_within(side: int, groups: int) -> int:
    """How many rounds of maps a page has room for."""
    return max(1, min(_MOST_ROUNDS, _ROOM // (side * side * groups)))


def _squares(groups: Sequence[Group], whole: StoredArray, pooled: StoredArray) -> Squares | None:
    """The squares over rounds, None where no run has one that can be read."""
    table = class_table(groups, whole, pooled)
    shown = None if table is None else snapshots(groups, table.array, most=rounds_within(table.side, len(groups)))
    return None if table is None or shown is None else (table, shown, _row_names(groups, table))


def _extremes(groups: Sequence[Group], squares: Squares) -> list[tuple[str, float, int, int]]:
    """Label, value, row and column of the strongest cell off the diagonal at the last round, group by group."""
    _, shown, names = squares
    cells = ((group.label, strongest(values, len(names))) for group, values in zip(groups, shown.last, strict=True))
    return [(label, *cell) for label, cell in cells if cell is not None]


def _row_names(groups: Sequence[Group], table: ClassTable) -> tuple[str, ...]:
    """The names of classes, or the first and the last name of every block."""
    names = _class_names(groups, table.classes)
    if table.block == 1:
        return names
    blocks = [names[start : start + table.block] for start in range(0, table.classes, table.block)]
    return tuple(block[0] if len(block) == 1 else f"{block[0]}–{block[-1]}" for block in blocks)


def _class_names(groups: Sequence[Group], classes: int) -> tuple[str, ...]:
    """The classes' names where the runs agree on them, otherwise their numbers."""
    stored = {run.partition.class_names for group in groups for run in group.runs if run.partition}
    names = stored.pop() if len(stored) == 1 else None
    return names if names is not None and len(names) == classes else tuple(map(str, range(classes)))


def _last_round(what: str, named: Sequence[str]) -> str:
    return f"{what} at the last round: {listing(named)}." if named and len(named) <= MOST_NAMED else ""
