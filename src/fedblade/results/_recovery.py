"""Mends the files of lines of a run that goes on: their lines are compared with the journal."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedblade.results._file_names import CLIENTS, HISTORY
from fedblade.results._journal import KEYS, LONG, Journal, digest_of
from fedblade.results._json_files import parse_object, read_bytes
from fedblade.results._record import finite_number
from fedblade.results._unreadable import numbered

_NUMBERS = ("seconds", "bytes_up", "bytes_down")
_ACCURACIES = ("test_accuracy", "test_loss")
"""Fields that a line of the history must have, and fields that are numbers where it has them."""


@dataclass(frozen=True)
class Recovered:
    """The lines of a file by round or client, the lines that are none of them, and what was mended or is lost."""

    lines: Mapping[int, str]
    odd: tuple[bytes, ...] = ()
    notes: tuple[str, ...] = ()


def recover(path: Path, journal: Journal | None, last: int | None = None) -> Recovered:
    """The lines of a file as they were written, up to the round `last`.

    A line that the journal has is taken from the journal. A line that the journal does not have is taken as it is; only
    a client that it does not have is left out, because it may be one of another run and is measured again. A line that
    cannot be read, and a line that the journal contradicts, is odd. Of a repeated round the later line counts.
    """
    lines, broken = _lines_of(path, KEYS[path.name])
    noted = {} if journal is None else journal.contents(path.name)
    lines, noted = _up_to(lines, last), _up_to(noted, last)
    if path.name == CLIENTS and journal is not None and journal.is_of_this_run:
        lines = {client: line for client, line in lines.items() if client in noted}
    if path.name in LONG:
        changed = {key: line for key, line in lines.items() if key in noted and digest_of(line) != noted[key]}
        kept = {key: line for key, line in lines.items() if key not in changed}
        gone = sorted(noted.keys() - kept.keys())
        notes = [f"{_place_of(path, gone)} changed or lost after they were written, and are left out"] if gone else []
    else:
        changed = {key: line for key, line in lines.items() if noted.get(key, line) != line}
        kept = lines | noted
        mended = sorted((noted.keys() - lines.keys()) | changed.keys())
        notes = [f"{_place_of(path, mended)} changed or lost, and mended from the journal"] if mended else []
    if broken and not notes:
        notes = [f"{numbered('line', list(broken))} of '{path}' cannot be read"]
    return Recovered(
        dict(sorted(kept.items())), (*broken.values(), *(line.encode() for line in changed.values())), tuple(notes)
    )


def has_lines(path: Path, journal: Journal) -> bool:
    """Whether a file of `LONG` lines has exactly those of the journal. The lines are not parsed, which takes longer."""
    noted = list(journal.contents(path.name).values())
    *lines, rest = read_bytes(path).split(b"\n")
    return not rest and [digest_of(line.decode(errors="replace")) for line in lines] == noted


def _place_of(path: Path, keys: list[int]) -> str:
    return f"in '{path}': {numbered(KEYS[path.name], keys)}"


def _up_to(lines: Mapping[int, str], last: int | None) -> dict[int, str]:
    return {key: line for key, line in sorted(lines.items()) if last is None or key <= last}


def _is_complete(name: str, entry: Mapping[str, Any]) -> bool:
    """Whether a line has the numbers that a run needs to go on from it. A JSON null stands for NaN."""
    needed = _NUMBERS if name == HISTORY else ()
    optional = _ACCURACIES if name == HISTORY else ()
    return all(finite_number(entry.get(field)) is not None for field in needed) and all(
        entry.get(field) is None or finite_number(entry[field]) is not None for field in optional
    )


def _lines_of(path: Path, name: str) -> tuple[dict[int, str], dict[int, bytes]]:
    """The lines of a file by the field `name`, and its broken lines by number.

    A broken last line without a line end is neither: a run that was killed while it wrote leaves such a line.
    """
    found: dict[int, str] = {}
    broken: dict[int, bytes] = {}
    lines = read_bytes(path).split(b"\n")
    for number, line in enumerate(lines, 1):
        entry = parse_object(line)
        key = None if entry is None else entry.get(name)
        if entry is not None and type(key) is int and _is_complete(path.name, entry):
            # Some editors change the ends of all lines.
            found[key] = line.decode().rstrip()
        elif line.strip() and number < len(lines):
            broken[number] = line
    return found, broken
