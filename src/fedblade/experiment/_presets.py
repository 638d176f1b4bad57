"""Presets shipped with the library, as data, and configuration files of the user's."""

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured, nearest

_FOLDER = resources.files("fedblade.experiment") / "presets"


def preset_names() -> list[str]:
    """Names of the shipped presets."""
    return sorted(item.name.removesuffix(".toml") for item in _FOLDER.iterdir() if item.name.endswith(".toml"))


def read_config(source: str | Path | None) -> dict[str, Any]:
    """Raw tables of a preset, of a TOML file, or of the quickstart when nothing is named."""
    name = "quickstart" if source is None else str(source)
    if name in preset_names():
        return _parse((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"), name)
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        if not path.is_file():
            raise Misconfigured(f"no such config file '{name}'. Give an existing .toml file or a preset.")
        return _parse(path.read_text(encoding="utf-8"), name)
    raise Misconfigured(f"unknown preset '{name}'.{nearest(name, preset_names())}")


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"'{name}' is not valid TOML: {error}. Mend the file.") from error


def preset_summary(name: str) -> str:
    """The comment on a preset's first line."""
    first = (_FOLDER / f"{name}.toml").read_text(encoding="utf-8").partition("\n")[0]
    return first.lstrip("# ").strip()
