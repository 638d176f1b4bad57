"""Which columns of a parquet file hold the pictures and the labels, and the names of the classes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured, nearest


@dataclass(frozen=True)
class Columns:
    """Names of the picture and label columns; an empty name means: choose by name and type."""

    image: str = ""
    label: str = ""


def holds_bytes(kind: Any, types: Any) -> bool:
    """Whether a column of this type may hold encoded pictures."""
    if types.is_struct(kind):
        return any(kind.field(i).name == "bytes" for i in range(kind.num_fields))
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def check_type(path: Path, schema: Any, wanted: Sequence[str], integers: Sequence[str]) -> None:
    """Refuse a label column that does not hold integers."""
    for name in wanted:
        if name in schema.names and name not in integers:
            raise Misconfigured(
                f"'{path}' has labels of type {schema.field(name).type} in column '{name}'; expected integers, the "
                f"numbers of the classes from 0. Convert the column or set dataset.label to another column."
            )


def pick(path: Path, what: str, given: str, columns: Sequence[str], usual: Sequence[str]) -> str:
    """The column with the given name, else one with a usual name, else the only one; `columns` have a fitting type."""
    if given:
        if given in columns:
            return given
        raise Misconfigured(f"'{path}' has no {what} column '{given}'.{nearest(given, columns)}")
    for name in usual:
        if name in columns:
            return name
    if len(columns) == 1:
        return columns[0]
    if not columns and what == "image":
        raise Misconfigured(
            f"'{path}' has no column of pictures; expected encoded pictures. A table of numbers and text is read by "
            f"--set dataset=files --set dataset.path={path}."
        )
    listed = f"candidates are {', '.join(columns)}" if columns else "no column fits"
    raise Misconfigured(f"'{path}' does not say which column is the {what}: {listed}. Set dataset.{what}.")


def names_in(metadata: Any, label: str) -> tuple[str, ...]:
    """Class names that the hub's writer stores in the file."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return tuple(str(name) for name in features[label]["names"])
    except (KeyError, TypeError, ValueError):
        return ()
