"""How the columns of a table become inputs: numbers standardised, categories as one input per value (one-hot)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._cells import ColumnPlace, finite, missing_in, number_as_name
from fedblade.data._source import Array
from fedblade.data._table import QuotesData, Table
from fedblade.data.table_sums import CategorySums, NumberSums, TableSums, check_few, check_same_columns

_CONSTANT = 1e-13
"""A column whose variance is a smaller share of its squared mean is constant, or loses its digits."""
_MANY = 100
"""So many whole numbers that are all different are probably identifiers."""


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: one input, (number - mean) / std. A missing number becomes 0."""

    name: str
    mean: float
    std: float

    def inputs(self, column: Array) -> Array:
        """Inputs [n, 1]."""
        return np.nan_to_num((column - self.mean) / self.std)[:, None]


@dataclass(frozen=True)
class CategoryColumn:
    """A column of text: one input for each category, 1 where the cell has it. An unknown or missing one is all 0."""

    name: str
    values: tuple[str, ...]

    def inputs(self, column: Array) -> Array:
        """Inputs [n, categories]."""
        places = {value: index for index, value in enumerate(self.values)}
        none = len(self.values)
        found = np.fromiter((places.get(cell, none) for cell in column.tolist()), np.int64, len(column))
        return np.eye(none + 1, none, dtype=np.float32)[found]

    def unknown(self, column: Array) -> set[str]:
        """Values that training did not have."""
        return set(column[~missing_in(column)]).difference(self.values)


@dataclass(frozen=True)
class TableEncoding:
    """The encoding of a table, in the order of its columns. `left_out` names columns that are no inputs.

    With `fills`, missing values are filled; otherwise they are refused.
    """

    columns: tuple[NumberColumn | CategoryColumn, ...]
    left_out: tuple[str, ...] = ()
    fills: bool = False

    @property
    def width(self) -> int:
        """The number of inputs of a row."""
        return sum(1 if isinstance(column, NumberColumn) else len(column.values) for column in self.columns)

    def encode(self, table: Table, file: str = "the rows", first_row: int = 1) -> Array:
        """Inputs float32 [n, width] of a table. Columns that are no inputs may be there or not."""
        parts = []
        for column in self.columns:
            cells = table.columns.get(column.name)
            if cells is None:
                raise Misconfigured(f"{file} have no column '{column.name}'; expected the columns of training. Add it.")
            place = ColumnPlace(file, column.name, first_row)
            if not self.fills and (missing := missing_in(cells)).any():
                raise Misconfigured(
                    f"{place.cell(int(missing.argmax()))} has no value, and the model learnt from rows without missing "
                    f"values. Complete the cells."
                )
            parts.append(column.inputs(_as_kind(cells, column, place)).astype(np.float32))
        return np.concatenate(parts, axis=1)

    def unknown(self, table: Table, where: str = "in the test samples alone") -> tuple[str, ...]:
        """Lines for the user about texts of a table that are no categories; `where` says which texts these are."""
        return tuple(
            f"column '{column.name}' has {len(values):,} {'text' if len(values) == 1 else 'texts'} {where}; such a "
            f"text is no category, and its inputs are 0"
            for column in self.columns
            if isinstance(column, CategoryColumn)
            and (values := column.unknown(_as_kind(table.columns[column.name], column)))
        )

    def check_columns(self, table: Table) -> None:
        """Refuse a table with other columns than the tables of the encoding, or with numbers in place of text."""
        names = (*(column.name for column in self.columns), *self.left_out)
        check_same_columns(names, tuple(table.columns), "the agreement")
        for column in self.columns:
            cells = table.columns[column.name]
            if isinstance(column, CategoryColumn) and cells.dtype == np.float64 and not missing_in(cells).all():
                raise Misconfigured(
                    f"column '{column.name}' holds numbers in this table and text in the agreement; expected one kind. "
                    f"Correct the cells."
                )

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, such as for the file of a model."""
        return asdict(self)

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> "TableEncoding":
        """The encoding from what `to_json` gave."""
        columns = tuple(
            CategoryColumn(column["name"], tuple(column["values"])) if "values" in column else NumberColumn(**column)
            for column in given["columns"]
        )
        return TableEncoding(columns, tuple(given["left_out"]), bool(given["fills"]))


def _as_kind(cells: Array, column: NumberColumn | CategoryColumn, place: ColumnPlace | None = None) -> Array:
    """Cells as numbers or text, as training had them. Cells of which none has a value are both."""
    if isinstance(column, NumberColumn) == (cells.dtype == np.float64):
        return cells if isinstance(column, CategoryColumn) else finite(cells, place or ColumnPlace("", column.name))
    if missing_in(cells).all():
        return (
            np.full(len(cells), np.nan) if isinstance(column, NumberColumn) else np.full(len(cells), "", dtype=object)
        )
    if isinstance(column, CategoryColumn):
        return np.array([number_as_name(cell) for cell in cells], dtype=object)
    index, place = int((~missing_in(cells)).argmax()), place or ColumnPlace("the rows", column.name, 1)
    raise QuotesData(f"{place.cell(index)} is {cells[index]!r}; expected a number, as in training. Correct the cell.")


def encoding_of(sums: TableSums, *, fills: bool) -> tuple[TableEncoding, tuple[str, ...]]:
    """The encoding by the sums over all training rows, and lines for the user about columns that are left out."""
    columns: list[NumberColumn | CategoryColumn] = []
    left_out, notes = [], []
    for name, column in sums.columns.items():
        if column.count == 0:
            raise Misconfigured(f"column '{name}' has no value in any training row. Leave it out: dataset.drop={name}.")
        encoded = _number(name, column) if isinstance(column, NumberSums) else _category(name, column)
        if isinstance(encoded, str):
            left_out.append(name)
            notes.append(f"column '{name}' {encoded} and is left out")
            continue
        columns.append(encoded)
        if isinstance(column, NumberSums) and column.all_different and column.count >= _MANY:
            notes.append(
                f"column '{name}' has another whole number in every row; if it is an identifier, leave it out: "
                f"dataset.drop={name}"
            )
    if not columns:
        texts = any(isinstance(column, CategorySums) for column in sums.columns.values())
        hint = " Texts to be read are given as token ids: integers [n, length]." if texts else ""
        raise Misconfigured(
            f"no column is left as an input ({'; '.join(notes)}). Add columns that differ by sample.{hint}"
        )
    return TableEncoding(tuple(columns), tuple(left_out), fills), tuple(notes)


def _number(name: str, sums: NumberSums) -> NumberColumn | str:
    """The encoding of a column of numbers, or why it is left out."""
    mean = sums.total / sums.count
    variance = max(0.0, sums.squares / sums.count - mean * mean)
    if variance == 0:
        return "is the same in every training row, up to rounding,"
    if variance <= _CONSTANT * mean * mean:
        share = f"{_CONSTANT**0.5:.0e}"
        return f"has a deviation below {share} of its mean (subtract a constant from its numbers to keep it)"
    return NumberColumn(name, mean, variance**0.5)


def _category(name: str, sums: CategorySums) -> CategoryColumn | str:
    """The encoding of a column of text, or why it is left out."""
    if sums.all_different if sums.values is None else 1 < len(sums.values) == sums.count:
        return "has another text in every row, so it is an identifier,"
    values = check_few(name, sums)
    return "is the same in every training row" if len(values) == 1 else CategoryColumn(name, values)
