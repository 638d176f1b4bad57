"""Settings as they may be shown to others: without the folders of the machine they were used on."""

from collections.abc import Mapping
from typing import Any

_PATH = "path"


def shareable(table: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without paths of data; a reference to a file, such as `/home/me/mine.py:net`, loses its folders."""
    return {key: _value(value) for key, value in table.items() if key != _PATH}


def without_folders(text: str) -> str:
    """The text behind the last separator of folders."""
    return text.replace("\\", "/").rpartition("/")[2]


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return shareable(value)
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    return without_folders(value) if isinstance(value, str) else value
