"""Logs that do not grow without end."""

import contextlib
import os
import shutil
from pathlib import Path

LARGEST_LOG = 10_000_000
"""Bytes of a log after which it is put aside; one earlier part is kept."""


def rotate_logs(folder: Path, largest: int = LARGEST_LOG) -> None:
    """Put every log above a size aside as `NAME.1`, in place of the part that was put aside before.

    The log is copied and emptied, because a process has it open and goes on appending to it. Lines that are written
    between these two steps are lost.
    """
    for log in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            if log.stat().st_size > largest:
                aside = log.with_name(f"{log.name}.1")
                aside.unlink(missing_ok=True)
                shutil.copy2(log, aside)
                os.truncate(log, 0)
