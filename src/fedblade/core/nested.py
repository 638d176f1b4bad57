"""Nested tables, such as a configuration's, as one table with dotted keys."""

from collections.abc import Mapping
from typing import Any


def dotted(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"local": {"epochs": 5}}` becomes `{"local.epochs": 5}`; the order stays."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= dotted(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
