"""Data frames of a user as tables. They are known by their attributes; pandas is not imported."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._cells import ColumnPlace, category_column, finite, missing_in, mixed, refused_date, text_column
from fedblade.data._own_samples import OwnSamples
from fedblade.data._source import Array
from fedblade.data._table import Table
from fedblade.data._user_arrays import LABELS, NAMES, as_array


def is_frame(given: object) -> bool:
    """Whether an object is a data frame."""
    return hasattr(given, "columns") and hasattr(given, "iloc")


def column_names(frame: Any, what: str) -> list[str]:
    """The names of a frame's columns as text, all different."""
    names = [str(name) for name in frame.columns]
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise Misconfigured(f"{what} has two columns '{twice[0]}'; expected different names. Rename one of them.")
    return names


def read_frames(given: object) -> OwnSamples | None:
    """The samples of (frame, y) or (frame, y, frame_test, y_test); None for anything else."""
    items: Sequence[Any] = given if isinstance(given, tuple | list) else ()
    inputs = [is_frame(item) for item in items[::2]]
    if len(items) not in (2, 4) or not any(inputs):
        return None
    if not all(inputs):
        raise Misconfigured(
            f"{NAMES[0]} is a {type(items[0]).__name__} and {NAMES[2]} a {type(items[2]).__name__}; expected data "
            f"frames for both. Give both parts in one form."
        )
    tables = [_table(item, name) for item, name in zip(items[::2], NAMES[::2], strict=False)]
    labels = [as_array(name, item) for item, name in zip(items[1::2], LABELS, strict=False)]
    return OwnSamples(tables[0], labels[0], *((tables[1], labels[1]) if len(items) == 4 else ()))


def _table(frame: Any, what: str) -> Table:
    columns = {}
    for position, name in enumerate(column_names(frame, what)):
        columns[name] = _column(frame.iloc[:, position], ColumnPlace(what, name, 0, in_frame=True))
        empty = missing_in(columns[name])
        if empty.any():
            raise Misconfigured(
                f"{what} has no value in column '{name}', row {int(empty.argmax())} ({int(empty.sum()):,} of "
                f"{len(frame):,} in this column); expected a value in every cell. Fill the cells, such as with "
                f"frame['{name}'].fillna(…), or leave the column out."
            )
    return Table(columns)


def _column(series: Any, place: ColumnPlace) -> Array:
    """A column as numbers or text, by its type; a column of Python objects by the types of its cells.

    A column of pandas' type `category` holds names, whatever they look like.
    """
    kind = getattr(series.dtype, "kind", "O")
    if kind in "iuf":
        return finite(np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan)), place)
    cells = [None if empty else cell for cell, empty in zip(series.tolist(), series.isna().tolist(), strict=True)]
    names = ["" if cell is None else str(cell).strip() for cell in cells]
    if hasattr(series.dtype, "categories"):
        return category_column(names)
    dated = next((i for i, cell in enumerate(cells) if hasattr(cell, "isoformat")), None)
    if kind in "mM" or dated is not None:
        raise refused_date(names[dated or 0], place, dated or 0)
    numeric = [isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells]
    if not any(numeric):
        return text_column(names, place)
    other = next((i for i, cell in enumerate(cells) if cell is not None and not numeric[i]), None)
    if other is None:
        return finite(np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float64), place)
    number = numeric.index(True)
    raise mixed(place, (other, names[other]), (number, names[number]))
