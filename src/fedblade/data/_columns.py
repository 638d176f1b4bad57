"""Which columns of a parquet file hold the pictures and the labels, and what the labels are called."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured, nearest


@dataclass(frozen=True)
class Columns:
    """Names of the picture and label columns; empty names are guessed."""

    image: str = ""
    label: str = ""


def holds_bytes(kind: Any, types: Any) -> bool:
    """Whether a column of this type may hold encoded pictures."""
    if types.is_struct(kind):
        return any(kind.field(i).name == "bytes" for i in range(kind.num_fields))
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def check_type(path: Path, schema: Any, wanted: Sequence[str], integers: Sequence[str]) -> None:
    """Say so if a label column is there but does not hold class numbers."""
    for name in wanted:
        if name in schema.names and name not in integers:
            raise Misconfigured(
                f"'{path}' has labels of type {schema.field(name).type} in column '{name}'; expected integers, the "
                f"numbers of the classes from 0. Convert the column or set dataset.label to another one."
            )


def pick(path: Path, what: str, given: str, found: Sequence[str], usual: Sequence[str]) -> str:
    """The column asked for, else one of the usual names, else the only one of its kind."""
    if given:
        if given in found:
            return given
        raise Misconfigured(f"'{path}' has no {what} column '{given}'.{nearest(given, found)}")
    for name in usual:
        if name in found:
            return name
    if len(found) == 1:
        return found[0]
    listed = f"candidates are {', '.join(found)}" if found else "no column fits"
    raise Misconfigured(f"'{path}' does not say which column is the {what}: {listed}. Set dataset.{what}.")


def names_in(metadata: Any, label: str) -> tuple[str, ...]:
    """Class names that the hub's writer stores in the file."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return tuple(str(name) for name in features[label]["names"])
    except (KeyError, TypeError, ValueError):
        return ()
