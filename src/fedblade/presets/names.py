"""What papers call methods, models and data sets. This module imports no torch, so that reports are quick to make."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

NAMES = "names.toml"
"""The file of these names, beside the files of grids."""


@cache
def names_in_papers() -> Mapping[str, Mapping[str, Any]]:
    """By kind: the names that papers use for parts of the library, and facts about data sets."""
    return tomllib.loads((resources.files("fedblade.presets") / "files" / "papers" / NAMES).read_text(encoding="utf-8"))


def method_in_papers(method: str, plus: str = "+") -> str:
    """A method as papers write it, with its regularisers joined by `plus`: `FedAvg+FedDecorr`, `FedETF-FT`."""
    names, (base, *added) = names_in_papers(), method.split("+")
    plain = base.removesuffix("-ft")
    shown = names["method"].get(plain, plain) + ("-FT" if plain != base else "")
    return plus.join((shown, *(names["regulariser"].get(name, name) for name in added)))
