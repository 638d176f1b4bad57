"""Reads the JSON files of a run folder: the only place that decides what happens to a line that is broken."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured
from fedblade.core.files import remedy

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


def _is_round(value: object) -> bool:
    """Whether a value can be the number of a round, which counts from 1."""
    return type(value) is int and 1 <= value <= _MOST_ROUNDS


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
