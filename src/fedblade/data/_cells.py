"""Cells of a text file as a column: numbers, or names of categories. A column of both is refused."""

import math
import re
from collections.abc import Collection, Sequence
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
    r"|\d{1,2}\.?[- ](jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[-., ]+\d{2,4}( .*)?",
    re.IGNORECASE,
)
_ALMOST_NUMBER = re.compile(r"[-+]?[$€£]?\s?(\d{1,3}([.,']\d{3})+|\d+)([.,]\d+)?\s?[%$€£]?")
"""Numbers with a decimal comma, signs between thousands, a currency or a per cent sign."""


@dataclass(frozen=True)
class ColumnPlace:
    """Where a column is: the file, its name, and the row of its first cell, for error messages.

    A column of a data frame (`in_frame`) is changed in the frame, one of a file by a setting.
    """

    file: str
    name: str
    first_row: int = 2
    in_frame: bool = False

    @property
    def leave_out(self) -> str:
        """What leaves the column out."""
        return f"frame.drop(columns={self.name!r})" if self.in_frame else f"dataset.drop={self.name}"

    @property
    def as_names(self) -> str:
        """For an error: the code or the setting by which the cells are read as names of categories."""
        return f"frame[{self.name!r}].astype('category')" if self.in_frame else f"dataset.categories={self.name}"

    def cell(self, index: int) -> str:
        """The place of a cell."""
        return f"'{self.file}', column '{self.name}', row {index + self.first_row}"


def number_column(cells: Sequence[str], place: ColumnPlace) -> Array | None:
    """Cells as float64 with NaN where a value is missing; None if at least one cell is no number."""
    if "_" in "".join(cells):
        return None
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
    """Refuse a column of a text file that holds numbers too, or text that stands for dates or numbers."""
    different = set(cells) - MISSING
    numbers = {cell for cell in different if is_number(cell)}
    texts = different - numbers
    index = check_texts(cells, texts, place)
    if numbers:
        number = next(i for i, cell in enumerate(cells) if cell in numbers)
        raise mixed(place, (index, cells[index]), (number, cells[number]))


def check_texts(cells: Sequence[str], texts: Collection[str], place: ColumnPlace) -> int:
    """Refuse texts that are dates or almost numbers; gives the index of the first cell that is one of the `texts`."""
    index = next(i for i, cell in enumerate(cells) if cell in texts)
    text = cells[index]
    if _DATE.fullmatch(text):
        raise refused_date(text, place, index)
    if all(map(_ALMOST_NUMBER.fullmatch, texts)):
        raise QuotesData(
            f"{place.cell(index)} is {text!r}; expected digits and a decimal point alone, such as 1020.5 for 1,020.5 "
            f"or 1020,5. Correct the column, or read it as names of categories: {place.as_names}."
        )
    return index


def text_column(cells: Sequence[str], place: ColumnPlace) -> Array:
    """Cells of a column whose type is text, as names of categories; numbers are texts there.

    Dates and texts that are almost numbers are refused.
    """
    texts = {cell for cell in set(cells) - MISSING if not is_number(cell)}
    if texts:
        check_texts(cells, texts, place)
    return category_column(cells)


def refused_date(text: str, place: ColumnPlace, index: int) -> QuotesData:
    """The error for a date or time."""
    return QuotesData(
        f"{place.cell(index)} is the date or time {text!r}; expected a number or the name of a category. Give a "
        f"number such as days since a date, or leave the column out: {place.leave_out}."
    )


def mixed(place: ColumnPlace, text: tuple[int, str], number: tuple[int, str]) -> QuotesData:
    """The error for a column with numbers and text, by the index and content of one cell of either kind."""
    return QuotesData(
        f"{place.cell(text[0])} is {text[1]!r}, and row {number[0] + place.first_row} is the number {number[1]!r}; "
        f"expected numbers alone or text alone. Correct the cell, or read the numbers as names of categories: "
        f"{place.as_names}."
    )


def is_number(cell: str) -> bool:
    """Whether a cell is a number. Python would read 1_2 as 12; in a table that is a name."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def number_as_name(number: float) -> str:
    """A number that stands for a category, such as a code; whole numbers without a point. "" for a missing one."""
    if number != number:
        return ""
    return str(int(number)) if float(number).is_integer() else repr(float(number))


def finite(numbers: Array, place: ColumnPlace) -> Array:
    """The numbers of a column; infinite ones are refused."""
    infinite = np.flatnonzero(np.isinf(numbers))
    if len(infinite):
        raise Misconfigured(f"{place.cell(int(infinite[0]))} is infinite; expected a finite number. Correct the cell.")
    return numbers


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
            whole = np.fromiter(map(int, cells), np.int64, len(cells))
        except (ValueError, OverflowError):
            whole = None
        if whole is not None and "_" not in "".join(cells):
            return whole
        fraction = next((i for i, cell in enumerate(cells) if not cell.lstrip("+-").isdigit()), 0)
        if all(map(is_number, cells)):
            raise QuotesData(
                f"{place.cell(fraction)} is the label {cells[fraction]!r}; expected whole numbers or names of classes. "
                f"Write the labels without a point, or take them as names: dataset.categories={place.name}."
            )
    return np.array(cells)
