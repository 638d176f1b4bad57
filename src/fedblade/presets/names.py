"""What papers call methods, models and data sets. This module imports no torch, so that pages are made quickly."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

NAMES = "names.toml"
"""The file of these names; it lies beside the presets of the papers."""


@cache
def names_in_papers() -> Mapping[str, Mapping[str, Any]]:
    """What papers call the parts of the library, and facts about data sets that may not be on this machine."""
    return tomllib.loads((resources.files("fedblade.presets") / "files" / "papers" / NAMES).read_text(encoding="utf-8"))
