"""A small TOML writer for configurations: tables of scalars, lists and inline tables."""

import json
import math
from collections.abc import Mapping
from typing import Any


def dumps(config: Mapping[str, Any]) -> str:
    """TOML text of a configuration: plain keys first, then one section per table."""
    plain = {key: value for key, value in config.items() if not isinstance(value, Mapping)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for name, table in config.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{_key(name)}]"]
            lines += [f"{_key(key)} = {_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _key(key: str) -> str:
    bare = key.replace("_", "").replace("-", "")
    return key if bare.isascii() and bare.isalnum() else _string(key)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _float(value)
        case str():
            return _string(value)
        case Mapping():
            return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(_value(each) for each in value) + "]"
    raise TypeError(f"cannot write {type(value).__name__} to TOML")


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def inline(table: Mapping[str, Any]) -> str:
    """One `key = value` line per entry, nested tables inline."""
    return "\n".join(f"{_key(key)} = {_value(value)}" for key, value in table.items())
