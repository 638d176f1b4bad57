"""Shows runs in the terminal until they end."""

import time
from pathlib import Path

from rich.console import Console
from rich.live import Live

from fedblade.core.errors import Misconfigured
from fedblade.core.standard_streams import lost_output
from fedblade.watch._folder import WatchedFolder
from fedblade.watch._frame import frame, plain_lines

_POLL_SECONDS = 1.0
_GRACE_SECONDS = 15.0
"""The next run of a comparison loads its data for some time before it appears."""


def check_folder(path: Path) -> Path:
    """The path, or an error if there is no folder; the folder may be empty."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise Misconfigured(f"'{path}' {what}; expected the folder of a run, or one that holds runs. Check the path.")
    return path


def show(
    path: Path, console: Console, *, poll_seconds: float = _POLL_SECONDS, grace_seconds: float = _GRACE_SECONDS
) -> None:
    """Show the runs at or below `path` until all have ended; if `console` is no terminal, print them once as text."""
    folder = WatchedFolder(check_folder(path))
    folder.refresh()
    if not console.is_terminal or console.is_dumb_terminal:
        _print_plain(folder, console)
        return
    if not folder.ended(time.time(), grace_seconds):
        _follow(folder, console, poll_seconds, grace_seconds)
    # One line is left for the prompt that follows.
    console.print(frame(folder, time.time(), console.width, console.height - 1))


def _print_plain(folder: WatchedFolder, console: Console) -> None:
    if not folder.runs:
        nothing = f"'{folder.path}' holds no run yet. Give the folder of one, or wait for it."
        raise Misconfigured(" ".join(folder.problems) or nothing)
    for line in plain_lines(frame(folder, time.time(), console.width)):
        console.print(line, markup=False, highlight=False, emoji=False, no_wrap=True, overflow="ignore", crop=False)


def _follow(folder: WatchedFolder, console: Console, poll_seconds: float, grace_seconds: float) -> None:
    """Draw again after every pause, because times change even when files do not."""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            now = time.time()
            live.update(frame(folder, now, console.width, console.height), refresh=True)
            if folder.ended(now, grace_seconds) or lost_output() is not None:
                return
            time.sleep(poll_seconds)
            folder.refresh()
