"""Processes that a test has started."""

from pathlib import Path


def processes_in(folder: Path) -> list[int]:
    """The processes that work in a folder: those of a command that was started there."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                where = (process / "cwd").readlink()
            except OSError:
                continue
            if where == folder:
                found.append(int(process.name))
    return sorted(found)
