"""Hugging Face data sets as samples. They are known by their attributes; their package is not imported."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedblade.core.errors import Misconfigured, nearest
from fedblade.data._cells import ColumnPlace, category_column, finite, label_column, missing_in
from fedblade.data._folders import TEST_NAMES
from fedblade.data._own_samples import OwnSamples
from fedblade.data._source import Array
from fedblade.data._table import Table
from fedblade.data._user_arrays import as_array

_LABEL = "label"
_SOURCE = "a Hugging Face data set"


def read_hub(given: object) -> OwnSamples | None:
    """The samples of a `Dataset`, of a `DatasetDict`, or of two `Dataset`s (train, test); None for anything else."""
    if isinstance(given, Mapping) and given and all(_is_hub_dataset(part) for part in given.values()):
        return _splits(given)
    if _is_hub_dataset(given):
        return _part(given, "the data set")
    if isinstance(given, tuple | list) and len(given) == 2 and all(map(_is_hub_dataset, given)):
        return _with_test(_part(given[0], "the training set"), _part(given[1], "the test set"))
    return None


def _is_hub_dataset(given: object) -> bool:
    return hasattr(given, "features") and hasattr(given, "column_names") and not isinstance(given, Mapping)


def _splits(given: Mapping[str, Any]) -> OwnSamples:
    if "train" not in given:
        raise Misconfigured(
            f"the DatasetDict has the splits {', '.join(given)}; expected 'train', and 'test' if there is one. Give "
            f"two of them: dataset=(splits['NAME'], splits['NAME'])."
        )
    test = next((name for name in TEST_NAMES if name in given), None)
    train = _part(given["train"], "split 'train'")
    return train if test is None else _with_test(train, _part(given[test], f"split '{test}'"))


def _with_test(train: OwnSamples, test: OwnSamples) -> OwnSamples:
    if train.class_names != test.class_names:
        raise Misconfigured(
            "training and test labels have different names of classes; expected the same. Cast the labels of one part "
            "to the classes of the other."
        )
    return replace(train, x_test=test.x, y_test=test.y)


def _part(given: Any, what: str) -> OwnSamples:
    """One split: a label column, and either one column of pictures or lists, or columns of numbers and text."""
    names = list(given.column_names or ())
    if not hasattr(given, "__len__"):
        raise Misconfigured(f"{what} is a stream, whose length is unknown; expected a data set. Load it as a whole.")
    if _LABEL not in names:
        hint = nearest(_LABEL, names)
        raise Misconfigured(
            f"{what} has no column '{_LABEL}'.{hint} Name the column of the labels so: "
            f"ds.rename_column('NAME', '{_LABEL}')."
        )
    if len(given) == 0:
        raise Misconfigured(f"{what} has no rows; expected samples.")
    plain = given.with_format(None)
    inputs = {name: plain.select_columns([name])[:][name] for name in names if name != _LABEL}
    labels, class_names = _labels(plain.select_columns([_LABEL])[:][_LABEL], given.features[_LABEL], what)
    return OwnSamples(_inputs(inputs, what), labels, source=_SOURCE, class_names=class_names)


def _labels(cells: Sequence[Any], feature: Any, what: str) -> tuple[Array, tuple[str, ...] | None]:
    """Labels, and the names of the classes if the column is a ClassLabel."""
    names = getattr(feature, "names", None)
    if names is not None:
        return np.asarray([-1 if cell is None else cell for cell in cells], dtype=np.int64), tuple(map(str, names))
    if cells and all(isinstance(cell, int) and not isinstance(cell, bool) for cell in cells):
        return np.asarray(cells, dtype=np.int64), None
    place = ColumnPlace(what, _LABEL, 0)
    return label_column(["" if cell is None else str(cell) for cell in cells], place, as_names=False), None


def _inputs(columns: Mapping[str, Sequence[Any]], what: str) -> Array | Table:
    wide = [name for name, cells in columns.items() if _is_wide(cells[0])]
    if not wide:
        return _table(columns, what)
    if len(columns) > 1:
        raise Misconfigured(
            f"{what} has the columns {', '.join(columns)} besides '{_LABEL}'; expected one column of pictures or lists "
            f"alone. Keep one: ds.select_columns(['{wide[0]}', '{_LABEL}'])."
        )
    cells = columns[wide[0]]
    return _pictures(cells, wide[0], what) if hasattr(cells[0], "convert") else as_array(f"column '{wide[0]}'", cells)


def _is_wide(cell: Any) -> bool:
    """Whether a cell is a picture, a list or an array."""
    return hasattr(cell, "convert") or isinstance(cell, list | tuple | np.ndarray)


def _pictures(cells: Sequence[Any], name: str, what: str) -> Array:
    kinds = {(cell.size, cell.mode) for cell in cells}
    if len(kinds) > 1 or "P" in {mode for _, mode in kinds}:
        sizes = sorted({f"{width}×{height} {mode}" for (width, height), mode in kinds})
        shown = ", ".join(sizes[:4]) + (", …" if len(sizes) > 4 else "")
        raise Misconfigured(
            f"{what} has pictures of {len(sizes)} sizes and modes in column '{name}' ({shown}); expected one, without "
            f"a palette. Resize them: ds.map(lambda row: {{'{name}': row['{name}'].convert('RGB').resize((32, 32))}})."
        )
    return np.stack([np.asarray(cell) for cell in cells])


def _table(columns: Mapping[str, Sequence[Any]], what: str) -> Table:
    table = {}
    for name, cells in columns.items():
        if all(cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool)) for cell in cells):
            numbers = np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float64)
            table[name] = finite(numbers, ColumnPlace(what, name, 0))
        else:
            table[name] = category_column(["" if cell is None else str(cell).strip() for cell in cells])
        empty = missing_in(table[name])
        if empty.any():
            raise Misconfigured(
                f"{what} has no value in column '{name}', row {int(empty.argmax())} ({int(empty.sum()):,} of "
                f"{len(cells):,} in this column); expected a value in every cell. Complete the cells, or leave the "
                f"column out: ds.remove_columns('{name}')."
            )
    return Table(table)
