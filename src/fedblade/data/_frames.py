"""Data frames of a user as tables. They are known by their attributes; pandas is not imported."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._cells import ColumnPlace, category_column, missing_in, refused_date
from fedblade.data._own_samples import OwnSamples
from fedblade.data._source import Array
from fedblade.data._table import Table
from fedblade.data._user_arrays import NAMES, as_array


def is_frame(given: object) -> bool:
    """Whether an object is a data frame."""
    return hasattr(given, "columns") and hasattr(given, "iloc")


def read_frames(given: object) -> OwnSamples | None:
    """The samples of (frame, y, frame_test, y_test); None for anything else."""
    items: Sequence[Any] = given if isinstance(given, tuple | list) else ()
    if len(items) != 4 or not (is_frame(items[0]) and is_frame(items[2])):
        return None
    y, y_test = (as_array(name, items[index]) for name, index in ((NAMES[1], 1), (NAMES[3], 3)))
    return OwnSamples(_table(items[0], NAMES[0]), y, _table(items[2], NAMES[2]), y_test)


def _table(frame: Any, what: str) -> Table:
    columns = {}
    for name in map(str, frame.columns):
        columns[name] = _column(frame[name], ColumnPlace(what, name, 0))
        empty = missing_in(columns[name])
        if empty.any():
            raise Misconfigured(
                f"{what} has no value in column '{name}', row {int(empty.argmax())} ({int(empty.sum()):,} of "
                f"{len(frame):,} in this column); expected a value in every cell. Fill the cells, such as with "
                f"frame['{name}'].fillna(…), or leave the column out."
            )
    return Table(columns)


def _column(series: Any, place: ColumnPlace) -> Array:
    """A column as numbers or text, by its type."""
    kind = getattr(series.dtype, "kind", "O")
    if kind in "iuf":
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    if kind in "mM":
        raise refused_date(str(series.iloc[0]), place, 0)
    return category_column(["" if cell is None or cell != cell else str(cell).strip() for cell in series.tolist()])
