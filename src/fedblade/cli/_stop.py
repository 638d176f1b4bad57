"""A command that a signal stops, and the command that continues it."""

import os
import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fedblade.core.stop_signals import HANGUP, STOP_SIGNALS


class Stopped(BaseException):
    """One of `STOP_SIGNALS` arrived. Not an `Exception`, so that no `except Exception` stops the signal.

    `added_options` are the options that, added to the stopped command, make it continue; None if it cannot continue.
    `command` are the arguments of another command if that one continues. With `starts_again` the stopped command itself
    does, because it was to start again from round 0 and has not come to that.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.added_options: list[str] | None = None
        self.command: Sequence[str] = ()
        self.starts_again = False

    def advice(self, arguments: Sequence[str]) -> str:
        """One line with the command that continues; `arguments` are those of the stopped command."""
        if self.added_options is None:
            return "stopped"
        # A command that started again from round 0 goes on with what it has started.
        kept = [argument for argument in arguments if argument != "--restart"]
        with_torchrun = " with torchrun, as before" if "TORCHELASTIC_RUN_ID" in os.environ else ""
        again = self.command or (arguments if self.starts_again else [*kept, *self.added_options])
        return f"stopped; to go on{with_torchrun}: {shlex.join(['fedblade', *again])}"


def stop_on_signals() -> None:
    """Let signals stop the command. A hang-up that is ignored already, as with `nohup`, stays ignored."""
    handler = _StopHandler()
    for number in STOP_SIGNALS:
        if number != HANGUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


class _StopHandler:
    """Stops the command cleanly at the first signal. A second one ends the process at once.

    A closed terminal sends SIGHUP more than once, and the end of a session sends SIGHUP and SIGTERM together. They
    count as one signal.
    """

    def __init__(self) -> None:
        self._first: int | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal; Python calls this in the main thread."""
        signal.signal(number, signal.SIG_IGN if number == HANGUP else signal.SIG_DFL)
        first, self._first = self._first, number
        if first is None or HANGUP not in (first, number):
            raise Stopped(number)


@contextmanager
def resumable(
    folder: Path, *, given: bool, options: Sequence[str] = (), command: Sequence[str] = (), restart: bool = False
) -> Iterator[None]:
    """Work that can continue in `folder`: by the same command with `options`, and with --out unless it was `given`.

    If that command would do something else, another `command` continues, with --out. With `restart` the work starts
    again from round 0 as soon as a run that is in the folder was put aside.
    """
    from fedblade.results import RunDirectory

    directory = RunDirectory(folder)
    waits, former = restart and directory.exists, directory.former
    try:
        yield
    except Stopped as stopped:
        stopped.added_options = [*options, *(() if given else ("--out", str(folder)))]
        stopped.command = [*command, "--out", str(folder)] if command else []
        stopped.starts_again = waits and directory.former == former
        raise
