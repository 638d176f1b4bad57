"""Processes that a test has started."""

import time
from collections.abc import Callable
from pathlib import Path

HUNG_SECONDS = 900.0
"""After this a test counts as hung. A time that matters is asserted by itself: a busy machine is slow at everything."""


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


def wait_for(what: Callable[[], object]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + HUNG_SECONDS
    while not what():
        assert time.monotonic() < deadline, "it hangs"
        time.sleep(0.2)
