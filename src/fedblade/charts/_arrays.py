"""Arrays of the last diagnosed round: accuracy by class, bins of confidence, and class against class."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedblade.charts._model import Matrix
from fedblade.results import (
    Group,
    StoredArray,
    Vector,
    array_length,
    finite_number,
    number_list,
    snapshots,
    square_matrix,
)

Bin = tuple[float, float, float]
"""The sum of confidences, the number of right answers and the number of answers."""

# A bin with fewer answers than the smaller of these says more about chance than about the model.
_FEW_ANSWERS, _FEW_SHARE = 20, 0.02


def bin_sums(stored: object) -> Vector | None:
    """The three numbers of every bin in a row, None where the stored value has no bins.

    Sums can be averaged over seeds; means of bins cannot, because seeds have different numbers of answers in a bin.
    """
    if not isinstance(stored, Mapping):
        return None
    columns = [number_list(stored.get(name)) for name in ("confidence", "accuracy", "count")]
    sure, right, count = (() if column is None else column for column in columns)
    if not count or {len(sure), len(right)} != {len(count)}:
        return None
    bins = (
        (0.0, 0.0, 0.0) if a is None or b is None or n is None else (a * n, b * n, n)
        for a, b, n in zip(sure, right, count, strict=True)
    )
    return tuple(value for sums in bins for value in sums)


def row_shares(stored: object) -> Vector | None:
    """A square of counts as shares of their rows, None in rows without samples; None where it is not a square."""
    counts = square_matrix(stored)
    if counts is None:
        return None
    side = math.isqrt(len(counts))
    rows = [[value or 0.0 for value in counts[at : at + side]] for at in range(0, len(counts), side)]
    return tuple(value / sum(row) if sum(row) else None for row in rows for value in row)


CLASS_ACCURACY = StoredArray("class_accuracy", number_list)
CALIBRATION = StoredArray("calibration", bin_sums)
CONFUSION = StoredArray("confusion", row_shares)
POOLED_CONFUSION = StoredArray("values", row_shares, within="confusion_pooled")
COSINES = StoredArray("class_cosines", square_matrix)
POOLED_COSINES = StoredArray("values", square_matrix, within="class_cosines_pooled")


@dataclass(frozen=True)
class ClassTable:
    """A table of class against class as runs have it.

    A row or column of a table of `side` rows stands for `block` neighbouring classes of all `classes`.
    """

    array: StoredArray
    side: int
    block: int
    classes: int


def row_words(word: str, block: int) -> str:
    """What a row or column of a table stands for, as a label of an axis."""
    return word if block == 1 else f"{word}, blocks of {block}"


def class_table(groups: Sequence[Group], whole: StoredArray, pooled: StoredArray) -> ClassTable | None:
    """The whole table where the runs have it, else the pooled one; None where they have none of one size."""
    side = array_length(groups, whole)
    if side is not None:
        return ClassTable(whole, side, 1, side)
    side = array_length(groups, pooled)
    diagnostics = (stored for group in groups for run in group.counted for stored in run.diagnostics.values())
    sizes = {_pooling(stored.get(pooled.within or "")) for stored in diagnostics} - {None}
    block, classes = (sizes.pop() if len(sizes) == 1 else None) or (1, 0)
    return ClassTable(pooled, side, block, classes) if side is not None and side == -(-classes // block) else None


def _pooling(stored: object) -> tuple[int, int] | None:
    """The number of classes in a block, and of all classes; None for anything but a pooled table."""
    if not isinstance(stored, Mapping):
        return None
    block, classes = finite_number(stored.get("block")), finite_number(stored.get("classes"))
    return None if block is None or classes is None or block < 1 else (int(block), int(classes))


def last_array(group: Group, array: StoredArray) -> Vector | None:
    """The array at the last round that has one, as a mean over seeds."""
    shown = snapshots([group], array, most=1)
    return None if shown is None else shown.last[0]


def class_matrix(group: Group, kind: str) -> tuple[Matrix, int] | None:
    """Class by class: cosines, or the answers to each true class in percent of its samples; and the classes in a row.

    Tables of many classes are pooled: a row then stands for several neighbouring classes.
    """
    arrays, factor = ((CONFUSION, POOLED_CONFUSION), 100.0) if kind == "confusion" else ((COSINES, POOLED_COSINES), 1.0)
    table = class_table([group], *arrays)
    stored = None if table is None else last_array(group, table.array)
    if table is None or stored is None:
        return None
    values = [None if value is None else factor * value for value in stored]
    rows = tuple(tuple(values[at : at + table.side]) for at in range(0, len(values), table.side))
    return rows, table.block


def filled_bins(group: Group) -> list[Bin]:
    """The bins with answers, of all seeds together. Personal models share no bins."""
    values = None if group.personal else last_array(group, CALIBRATION)
    sums = [(value or 0.0) * len(group.counted) for value in values or ()]
    return [(sums[at], sums[at + 1], sums[at + 2]) for at in range(0, len(sums), 3) if sums[at + 2] > 0]


def fewest_answers(bins: Sequence[Bin]) -> int:
    """How many answers a bin needs to be drawn."""
    return math.ceil(min(_FEW_ANSWERS, _FEW_SHARE * sum(count for _, _, count in bins)))


def reliability_points(group: Group) -> list[tuple[float, float]]:
    """Right answers against confidence, both in percent, of the bins with enough answers."""
    bins = filled_bins(group)
    fewest = fewest_answers(bins)
    return sorted((100 * sure / n, 100 * right / n) for sure, right, n in bins if n >= fewest)
