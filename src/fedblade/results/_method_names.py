"""Short names for methods of the user's own in tables and pages: `relative` for `path/to/mine.py:relative`."""

from collections.abc import Sequence
from pathlib import Path


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
