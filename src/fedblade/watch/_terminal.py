"""The view in the terminal: drawn again when something changes, until the run ends."""

import time
from pathlib import Path

from rich.console import Console
from rich.live import Live

from fedblade.core.errors import Misconfigured
from fedblade.watch._folder import Folder
from fedblade.watch._frame import frame, plain_lines

_POLL_SECONDS = 1.0
_GRACE_SECONDS = 15.0
"""Time for the next run of a comparison to load its data and appear."""


def check_folder(path: Path) -> Path:
    """The path of a folder that is there, whatever it holds so far."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise Misconfigured(f"'{path}' {what}; expected the folder of a run, or one that holds runs. Check the path.")
    return path


def show(
    path: Path, console: Console, *, poll_seconds: float = _POLL_SECONDS, grace_seconds: float = _GRACE_SECONDS
) -> None:
    """Show the runs at or below `path` until all have ended; once, as plain text, if `console` is no terminal."""
    folder = Folder(check_folder(path))
    folder.refresh()
    if not console.is_terminal or console.is_dumb_terminal:
        _print_plain(folder, console)
        return
    if not folder.ended(time.time(), grace_seconds):
        _follow(folder, console, poll_seconds, grace_seconds)
    # One line is left for the prompt that follows.
    console.print(frame(folder, time.time(), console.width, console.height - 1))


def _print_plain(folder: Folder, console: Console) -> None:
    if not folder.runs:
        seen = " ".join(folder.problems) or f"'{folder.path}' holds no run yet. Give the folder of one, or wait for it."
        raise Misconfigured(seen)
    for line in plain_lines(frame(folder, time.time(), console.width)):
        console.print(line, markup=False, highlight=False, emoji=False, no_wrap=True, overflow="ignore", crop=False)


def _follow(folder: Folder, console: Console, poll_seconds: float, grace_seconds: float) -> None:
    """Redraw every poll, because ages and the time left move on even when no file does."""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            now = time.time()
            live.update(frame(folder, now, console.width, console.height), refresh=True)
            if folder.ended(now, grace_seconds):
                return
            time.sleep(poll_seconds)
            folder.refresh()
