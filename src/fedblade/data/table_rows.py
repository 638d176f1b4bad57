"""Rows that a trained model predicts for, as inputs: the same columns and the same encoding as in training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._cells import number_as_name
from fedblade.data._frames import column_names, is_frame
from fedblade.data._source import Array
from fedblade.data._table import QuotesData, Table
from fedblade.data.own_files import ReadSettings, read_own_file
from fedblade.data.table_encoding import CategoryColumn, NumberColumn, TableEncoding


def encode_rows(encoding: TableEncoding, rows: Any) -> Array:
    """Inputs float32 [n, width] of rows: a file, a data frame, columns by name, one row by name, or a list of rows."""
    if isinstance(rows, str | Path):
        names = tuple(column.name for column in encoding.columns)
        texts = tuple(column.name for column in encoding.columns if isinstance(column, CategoryColumn))
        settings = ReadSettings("", "fill" if encoding.fills else "refuse", categories=texts, only=names)
        table = read_own_file(rows, settings).x
        if not isinstance(table, Table):
            raise Misconfigured(
                f"'{rows}' holds arrays; expected a table, as in training. Give a .csv or .parquet file."
            )
        return encoding.encode(table, f"'{rows}'", first_row=2)
    given = _columns(rows)
    lengths = {name: len(cells) for name, cells in given.items()}
    if len(set(lengths.values())) > 1:
        raise Misconfigured(
            f"the columns of the rows have {lengths} cells; expected equally many. Complete the columns."
        )
    columns = {column.name: _cells(column, given[column.name]) for column in encoding.columns if column.name in given}
    return encoding.encode(Table(columns, encoding.fills))


def _columns(rows: Any) -> Mapping[str, Sequence[Any]]:
    """Cells by name of the column."""
    if is_frame(rows):
        return {name: rows.iloc[:, position].tolist() for position, name in enumerate(column_names(rows, "the frame"))}
    if isinstance(rows, Mapping):
        single = not any(map(_has_cells, rows.values()))
        return {name: [cells] if single else list(cells) for name, cells in rows.items()}
    if isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows):
        return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}
    raise Misconfigured(
        f"the model was trained on a table, and the inputs are a {type(rows).__name__}; expected rows with names of "
        f"columns. Give a data frame, a dict of columns, a list of dicts or the path of a file. For rows that are "
        f"encoded already, call the model itself."
    )


def _has_cells(given: Any) -> bool:
    """Whether a value is several cells: a list or an array."""
    return (isinstance(given, Sequence) and not isinstance(given, str)) or getattr(given, "ndim", 0) > 0


def _cells(column: NumberColumn | CategoryColumn, given: Sequence[Any]) -> Array:
    """Cells as numbers or text."""
    if isinstance(column, CategoryColumn):
        return np.array([_text(cell) for cell in given], dtype=object)
    try:
        return np.array([np.nan if cell is None else cell for cell in given], dtype=np.float64)
    except (TypeError, ValueError):
        raise QuotesData(
            f"column '{column.name}' has a cell that is no number; expected numbers, as in training. Correct the cell."
        ) from None


def _text(cell: Any) -> str:
    """A cell as the name of a category, "" for a missing one."""
    if cell is None:
        return ""
    return number_as_name(cell) if isinstance(cell, float) else str(cell).strip()
