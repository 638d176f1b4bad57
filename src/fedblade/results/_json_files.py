"""The JSON files of a run folder and their lines: how they are written, read, and what happens to a broken line."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured
from fedblade.core.files import BINARY, cannot_write, remedy

_MOST_ROUNDS = 10**9


@dataclass(frozen=True)
class Lines:
    """The JSON objects of a file with one object per line, and the numbers of its broken lines, counted from 1."""

    objects: list[dict[str, Any]]
    broken: list[int]


def read_lines(path: Path, *, by_round: bool = False) -> Lines:
    """Read a file with one JSON object per line; a file that is not there has none.

    A line that is no JSON object is broken; with `by_round`, so is a line whose `round` is no number of a round. Broken
    lines are left out and counted. A broken last line without a line end is left out and not counted: a run that is
    writing, or was killed while it wrote, leaves such a line.
    """
    lines = read_bytes(path).split(b"\n")
    objects, broken = [], []
    for number, line in enumerate(lines, 1):
        entry = parse_object(line)
        if entry is not None and (not by_round or _is_round(entry.get("round"))):
            objects.append(entry)
        elif line.strip() and number < len(lines):
            broken.append(number)
    return Lines(objects, broken)


def read_object(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object; a file that is not there has no keys."""
    parsed = parse_object(read_bytes(path)) if path.exists() else {}
    if parsed is None:
        raise Misconfigured(f"'{path}' is not a JSON object. Restore it or leave this run out.")
    return parsed


def read_bytes(path: Path) -> bytes:
    """The content of a file, empty where there is none."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise Misconfigured(f"'{path}' cannot be read ({error.strerror}). {remedy(error)}.") from error


def parse_object(content: bytes) -> dict[str, Any] | None:
    """The JSON object in `content`, or None."""
    try:
        parsed = json.loads(content.decode())
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


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


def _is_round(value: object) -> bool:
    """Whether a value can be the number of a round, which counts from 1."""
    return type(value) is int and 1 <= value <= _MOST_ROUNDS
