"""Files with one JSON object per line: how a line is made, added and read back."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedblade.core.files import BINARY, cannot_write


def as_line(record: Mapping[str, Any]) -> str:
    """A record as one line of JSON without its end; NaN and infinities become null."""
    return json.dumps(json_safe(record))


def add_line(path: Path, line: str, *, sync: bool = True) -> None:
    """Add one line. If the disk is full, the part that was written is cut off again.

    With `sync` the line survives a power cut.
    """
    content = f"{line}\n".encode()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | BINARY, 0o644)
        size = os.fstat(handle).st_size
        try:
            written = 0
            while written < len(content):
                written += os.write(handle, content[written:])
            if sync:
                os.fsync(handle)
        except OSError:
            os.ftruncate(handle, size)
            raise
        finally:
            os.close(handle)
    except OSError as error:
        raise cannot_write(path, error) from error


def json_text(value: Mapping[str, Any]) -> str:
    """The text of a JSON file; NaN and infinities become null."""
    return json.dumps(json_safe(value), indent=2) + "\n"


def json_safe(value: Any) -> Any:
    """The value with None for NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: json_safe(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [json_safe(entry) for entry in value]
    return value
