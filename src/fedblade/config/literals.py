"""Values in one line of TOML, for messages and cards."""

from collections.abc import Mapping
from typing import Any

import tomli_w


def literal(value: Any) -> str:
    """A value as it stands after the equals sign: `0.1`, `"paper"`, `[1, 2]` or `{kind = "logdet"}`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(entry(key, inner) for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(literal, value)) + "]"
    return entry("x", value).removeprefix("x = ")


def entry(key: str, value: Any) -> str:
    """`key = value`, with quotes around the key if TOML needs them."""
    if isinstance(value, Mapping | list | tuple):
        return f"{entry(key, 0).removesuffix('0')}{literal(value)}"
    return tomli_w.dumps({key: value}).removesuffix("\n")
