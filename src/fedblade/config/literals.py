"""Values as TOML writes them on one line, for messages and cards."""

from collections.abc import Mapping
from typing import Any

import tomli_w


def literal(value: Any) -> str:
    """`0.1`, `"paper"`, `[1, 2]` or `{kind = "logdet"}`: what stands behind the equals sign."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{entry(key, inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(literal, value)) + "]"
    return entry("x", value).removeprefix("x = ")


def entry(key: str, value: Any) -> str:
    """`key = value`, with quotes around a key that needs them."""
    if isinstance(value, Mapping | list | tuple):
        return f"{entry(key, 0).removesuffix('0')}{literal(value)}"
    return tomli_w.dumps({key: value}).removesuffix("\n")
