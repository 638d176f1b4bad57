"""Tables in parquet files: numbers, truth values and text."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.extras import need
from fedblade.data._cells import (
    ColumnPlace,
    category_column,
    finite,
    label_column,
    number_as_name,
    refused_date,
    text_column,
)
from fedblade.data._columns import holds_bytes
from fedblade.data._own_samples import OwnSamples, ReadSettings
from fedblade.data._source import Array
from fedblade.data._table_columns import check_settings, table_samples

_PURPOSE = "reading parquet files"


def read_parquet(path: Path, settings: ReadSettings) -> OwnSamples:
    """The table of a parquet file. The index that pandas writes beside the columns is left out."""
    parquet = need("pyarrow.parquet", "data", "pyarrow", _PURPOSE)
    try:
        with parquet.ParquetFile(path) as file:
            header = [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]
            check_settings(str(path), header, settings)
            inputs = [name for name in header if settings.is_input(name)]
            table = file.read(columns=[*inputs, *([settings.label] if settings.label else [])])
    except (OSError, ValueError) as error:
        reason = "the file is empty" if path.stat().st_size == 0 else type(error).__name__
        raise Misconfigured(
            f"'{path}' cannot be read as a parquet file ({reason}); expected a table. Write the file again."
        ) from error
    if table.num_rows == 0:
        raise Misconfigured(f"'{path}' has columns but no rows; expected samples. Add rows.")
    columns = {name: _column(table.column(name), ColumnPlace(str(path), name, 1), settings) for name in inputs}
    place = ColumnPlace(str(path), settings.label, 1)
    labels = _labels(table.column(settings.label), place, settings) if settings.label else np.zeros(0, dtype=np.int64)
    return replace(table_samples(columns, labels, settings, place), source="a table in a parquet file")


def _column(values: Any, place: ColumnPlace, settings: ReadSettings) -> Array:
    """A column of a fitting type as numbers or text."""
    types, kind = need("pyarrow.types", "data", "pyarrow", _PURPOSE), values.type
    if types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind) or types.is_decimal(kind):
        if place.name in settings.categories:
            return category_column(_texts(values))
        numbers = values.cast(need("pyarrow", "data", "pyarrow", _PURPOSE).float64(), safe=False).to_numpy()
        return finite(np.asarray(numbers, dtype=np.float64), place)
    if types.is_temporal(kind):
        raise refused_date(str(values[0].as_py()), place, 0)
    if not (types.is_boolean(kind) or types.is_string(kind) or types.is_large_string(kind)):
        pictures = " Pictures are read by --set dataset=parquet." if holds_bytes(kind, types) else ""
        raise Misconfigured(
            f"'{place.file}' has values of type {kind} in column '{place.name}'; expected numbers or text. Leave the "
            f"column out: dataset.drop={place.name}.{pictures}"
        )
    return category_column(_texts(values)) if place.name in settings.categories else text_column(_texts(values), place)


def _texts(values: Any) -> list[str]:
    """Cells as text, "" for missing ones; whole numbers without a point."""
    cells = values.to_pylist()
    return ["" if c is None else number_as_name(c) if isinstance(c, float) else str(c).strip() for c in cells]


def _labels(values: Any, place: ColumnPlace, settings: ReadSettings) -> Array:
    """Labels: integers as they are, else names. Numbers with a point are refused."""
    types, kind = need("pyarrow.types", "data", "pyarrow", _PURPOSE), values.type
    if types.is_integer(kind) and values.null_count == 0 and place.name not in settings.categories:
        return np.asarray(values.to_numpy())
    cells = values.to_pylist()
    texts = ["" if cell is None or cell != cell else str(cell).strip() for cell in cells]
    return label_column(texts, place, as_names=place.name in settings.categories)
