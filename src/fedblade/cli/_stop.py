"""Being stopped by a signal, and the command that goes on from there."""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class Stopped(BaseException):
    """SIGINT or SIGTERM arrived. Not an `Exception`, so that nothing but the run's own clean-up catches it.

    `options` are what the command must be given, besides what it was, to go on with what it was doing.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.options: list[str] | None = None

    def advice(self, arguments: Sequence[str]) -> str:
        """One line that names the command to go on with, given the one that was stopped."""
        if self.options is None:
            return "stopped"
        with_torchrun = " with torchrun, as before" if "TORCHELASTIC_RUN_ID" in os.environ else ""
        return f"stopped; to go on{with_torchrun}: {shlex.join(['fedblade', *arguments, *self.options])}"


@contextmanager
def resumable(folder: Path, *, given: bool, options: Sequence[str] = ()) -> Iterator[None]:
    """Within, a signal is told how to go on: the same command with `options`, and with the folder unless `given`."""
    try:
        yield
    except Stopped as stopped:
        stopped.options = [*options, *(() if given else ("--out", str(folder)))]
        raise
