"""The columns of a text file while it is read in blocks, and the samples that they become."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._cells import ColumnPlace, category_column, check_names, label_column, mixed, number_column
from fedblade.data._own_samples import OwnSamples, ReadSettings
from fedblade.data._source import Array
from fedblade.data._table_columns import check_settings, table_samples


class TextColumns:
    """Columns of cells. A column holds numbers if every cell is a number or empty, else names of categories."""

    def __init__(self, file: str, header: Sequence[str], settings: ReadSettings) -> None:
        check_settings(file, [name for name in header if name], settings)
        self._file, self._header, self._settings = file, header, settings
        self._labels: list[str] = []
        self._parts: dict[str, list[Array]] = {name: [] for name in header if settings.is_input(name)}
        self._rows = 0

    def add(self, block: Sequence[tuple[str, ...]]) -> None:
        """Add rows, given column by column."""
        for name, cells in zip(self._header, block, strict=False):
            if name in self._parts:
                self._parts[name].append(self._column(name, cells))
            elif name and name == self._settings.label:
                self._labels += map(str.strip, cells)
        self._rows += len(block[0]) if block else 0

    def _column(self, name: str, cells: Sequence[str]) -> Array:
        place = ColumnPlace(self._file, name, self._rows + 2)
        if name in self._settings.categories:
            return category_column(cells)
        numbers = number_column(cells, place)
        if numbers is None:
            cells = [cell.strip() for cell in cells]
            check_names(cells, place)
        column = category_column(cells) if numbers is None else numbers
        known = next((part for part in self._parts[name] if not _is_empty(part)), column)
        if known.dtype != column.dtype and not _is_empty(column):
            here = next(i for i, cell in enumerate(cells) if column[i] == column[i] and column[i] != "")
            before = next(i for i, value in enumerate(known) if value == value and value != "")
            cell, earlier = (here, cells[here]), (before - self._rows, str(known[before]))
            raise mixed(place, *((cell, earlier) if numbers is None else (earlier, cell)))
        return column

    def samples(self, source: str) -> OwnSamples:
        """All rows as samples."""
        if self._rows == 0:
            raise Misconfigured(f"'{self._file}' has names of columns but no rows; expected samples. Add rows.")
        columns = {name: _joined(parts) for name, parts in self._parts.items()}
        place = ColumnPlace(self._file, self._settings.label)
        as_names = self._settings.label in self._settings.categories
        labels = label_column(self._labels, place, as_names=as_names)
        notes = ("columns: the first column has no name and is left out",) if self._header[0] == "" else ()
        return replace(table_samples(columns, labels, self._settings, place), source=source, notes=notes)


def _is_empty(column: Array) -> bool:
    """Whether every number of a column is missing."""
    return column.dtype == np.float64 and bool(np.isnan(column).all())


def _joined(parts: Sequence[Array]) -> Array:
    """The blocks of a column together. A block without values is a part of either kind of column."""
    if any(part.dtype == object for part in parts):
        parts = [np.full(len(part), "", dtype=object) if _is_empty(part) else part for part in parts]
    return np.concatenate(parts)
