"""Numbers, names of methods and commands as text."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from fedblade.results._file_names import DEPLOYMENT

MISSING = "–"
MOST_NAMED = 4
"""Up to this many methods are named one by one in a sentence."""
_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def percent(value: float | None) -> str:
    """A number with two decimals, or a dash for None."""
    return MISSING if value is None else f"{value:.2f}"


def duration(seconds: float | None) -> str:
    """Seconds, with fewer decimals the more there are."""
    if seconds is None:
        return MISSING
    if seconds < 100:
        return f"{seconds:.3f}" if seconds < 1 else f"{seconds:.2f}"
    return f"{seconds:,.0f}"


def size(num_bytes: float | None) -> str:
    """Bytes in decimal units."""
    if num_bytes is None:
        return MISSING
    unit, unit_bytes = size_unit(num_bytes)
    return f"{num_bytes / unit_bytes:,.3g} {unit}"


def size_unit(num_bytes: float) -> tuple[str, float]:
    """The decimal unit in which this many bytes are printed, and how many bytes it has."""
    return next((unit for unit in _UNITS if num_bytes >= 0.9995 * unit[1]), ("B", 1.0))


def resume_command(folder: Path) -> str:
    """The command that goes on with the run in a folder, or mends it."""
    deployed = "flower " if (folder / DEPLOYMENT).is_file() else ""
    return f"`fedblade {deployed}run --resume --out {shlex.quote(str(folder))}`"


def report_command(folder: Path) -> str:
    """The command that reports the run in a folder."""
    return f"fedblade report {shlex.quote(str(folder))}"


def short_names(methods: Sequence[str]) -> dict[str, str]:
    """The name that a table shows for each method. Two methods of one name keep their file, or else their path."""
    shown = {method: method.rpartition(":")[2] for method in methods}
    with_file = {method: _with_file(method) for method in methods}
    for more in (with_file, {method: method for method in methods}):
        names = list(shown.values())
        shown = {method: more[method] if names.count(name) > 1 else name for method, name in shown.items()}
    return shown


def _with_file(method: str) -> str:
    file, colon, name = method.rpartition(":")
    return f"{Path(file).stem}:{name}" if colon else method
