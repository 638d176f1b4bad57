"""Cells of a text file as a column: numbers, or names of categories. A column of both is refused."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._source import Array
from fedblade.data._table import QuotesData

_NAMED_MISSING = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-nan", "NULL", "null", "None", "none")
MISSING = frozenset(["", "?", *_NAMED_MISSING])
"""Cells that say that there is no value."""
_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}( .*)?|\d{1,2}:\d{2}(:\d{2}.*)?"
)
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")


@dataclass(frozen=True)
class ColumnPlace:
    """Where a column is: the file, its name, and the row of its first cell, for error messages."""

    file: str
    name: str
    first_row: int = 2

    def cell(self, index: int) -> str:
        """The place of a cell."""
        return f"'{self.file}', column '{self.name}', row {index + self.first_row}"


def number_column(cells: Sequence[str], place: ColumnPlace) -> Array | None:
    """Cells as float64 with NaN where a value is missing; None if at least one cell is no number."""
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        try:
            values = np.fromiter(
                (math.nan if c.strip() in MISSING else float(c) for c in cells), np.float64, len(cells)
            )
        except ValueError:
            return None
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        raise QuotesData(
            f"{place.cell(int(infinite[0]))} is {cells[infinite[0]]!r}; expected a finite number. Correct the cell, or "
            f"leave it empty and set dataset.missing=fill."
        )
    return values


def category_column(cells: Sequence[str]) -> Array:
    """Cells as names of categories, "" where a value is missing. Equal names share one string."""
    names = {cell: "" if cell.strip() in MISSING else cell.strip() for cell in set(cells)}
    return np.array([names[cell] for cell in cells], dtype=object)


def check_names(cells: Sequence[str], place: ColumnPlace) -> None:
    """Refuse a column of text that holds numbers too, dates, or numbers with a decimal comma."""
    different = set(cells) - MISSING
    numbers = {cell for cell in different if is_number(cell)}
    texts = different - numbers
    index = next(i for i, cell in enumerate(cells) if cell in texts)
    text = cells[index]
    if all(map(_DECIMAL_COMMA.fullmatch, texts)):
        raise QuotesData(f"{place.cell(index)} is {text!r}; expected a decimal point. Write 3.14 instead of 3,14.")
    if _DATE.fullmatch(text):
        raise refused_date(text, place, index)
    if numbers:
        number = next(i for i, cell in enumerate(cells) if cell in numbers)
        raise mixed(place, (index, text), (number, cells[number]))


def refused_date(text: str, place: ColumnPlace, index: int) -> QuotesData:
    """The error for a date or time."""
    return QuotesData(
        f"{place.cell(index)} is the date or time {text!r}; expected a number or the name of a category. Give a "
        f"number such as days since a date, or leave the column out: dataset.drop={place.name}."
    )


def mixed(place: ColumnPlace, text: tuple[int, str], number: tuple[int, str]) -> QuotesData:
    """The error for a column with numbers and text, by the index and content of one cell of either kind."""
    return QuotesData(
        f"{place.cell(text[0])} is {text[1]!r}, and row {number[0] + place.first_row} is the number {number[1]!r}; "
        f"expected numbers alone or text alone. Correct the cell, or read the numbers as names of categories: "
        f"dataset.categories={place.name}."
    )


def is_number(cell: str) -> bool:
    """Whether a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def check_missing(column: Array, place: ColumnPlace, *, fills: bool) -> None:
    """Refuse a column without any value, and one with a missing value unless missing values are filled."""
    missing = missing_in(column)
    if not fills and missing.any():
        count = int(missing.sum())
        if count == len(column):
            raise Misconfigured(
                f"'{place.file}' has no value in column '{place.name}'. Leave the column out: "
                f"dataset.drop={place.name}."
            )
        raise Misconfigured(
            f"{place.cell(int(missing.argmax()))} has no value ({count:,} of {len(column):,} in this column); expected "
            f"a value in every cell. Complete the cells, leave the column out (dataset.drop={place.name}), or set "
            f"dataset.missing=fill: the mean for numbers, no category for text."
        )


def missing_in(column: Array) -> Array:
    """Which cells of a column have no value."""
    return np.isnan(column) if column.dtype == np.float64 else column == ""


def label_column(cells: Sequence[str], place: ColumnPlace, *, as_names: bool) -> Array:
    """Labels: whole numbers as int64, else names. Numbers with a point are refused."""
    empty = next((i for i, cell in enumerate(cells) if cell in MISSING), None)
    if empty is not None:
        raise Misconfigured(f"{place.cell(empty)} has no label. Leave rows without a label out.")
    if not as_names:
        try:
            return np.fromiter(map(int, cells), np.int64, len(cells))
        except (ValueError, OverflowError):
            pass
        fraction = next((i for i, cell in enumerate(cells) if not _is_whole(cell)), 0)
        if all(map(is_number, cells)):
            raise QuotesData(
                f"{place.cell(fraction)} is the label {cells[fraction]!r}; expected whole numbers or names of classes. "
                f"Write the labels without a point, or take them as names: dataset.categories={place.name}."
            )
    return np.array(cells)


def _is_whole(cell: str) -> bool:
    return cell.lstrip("+-").isdigit()
