"""A command that a signal stops, and the command that continues it."""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class Stopped(BaseException):
    """SIGINT or SIGTERM arrived. Not an `Exception`, so that no `except Exception` stops the signal.

    `added_options` are the options that, added to the stopped command, make it continue; None if it cannot continue.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.added_options: list[str] | None = None

    def advice(self, arguments: Sequence[str]) -> str:
        """One line with the command that continues; `arguments` are those of the stopped command."""
        if self.added_options is None:
            return "stopped"
        with_torchrun = " with torchrun, as before" if "TORCHELASTIC_RUN_ID" in os.environ else ""
        return f"stopped; to go on{with_torchrun}: {shlex.join(['fedblade', *arguments, *self.added_options])}"


@contextmanager
def resumable(folder: Path, *, given: bool, options: Sequence[str] = ()) -> Iterator[None]:
    """Work that can continue in `folder`: by the same command with `options`, and with --out unless it was `given`."""
    try:
        yield
    except Stopped as stopped:
        stopped.added_options = [*options, *(() if given else ("--out", str(folder)))]
        raise
