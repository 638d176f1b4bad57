"""Listeners that show a run on a terminal or in a log."""

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from fedblade.core.errors import Misconfigured
from fedblade.core.listener import ListenerGroup, RoundRecord, RunListener, RunOverview
from fedblade.runs._callbacks import Callback, with_callbacks
from fedblade.runs._ending import STOPPED
from fedblade.runs._notebook import NotebookProgress, in_notebook
from fedblade.runs._overview import Pace, round_facts

Progress = bool | Literal["auto"]
"""Whether a run shows its progress: yes, no, or in terminals and notebooks only."""


class NoteLogger(RunListener):
    """Logs notes as warnings of the logger `fedblade`, so that a script shows them too. Shows nothing else."""

    def on_note(self, text: str) -> None:
        """Log the note."""
        logging.getLogger("fedblade").warning(text)


class ProgressBars(RunListener):
    """A live bar on a terminal: rounds, accuracy, seconds per round, time left; then one for the personal models.

    The bar of the rounds moves with every client of a round, where clients finish one after another.
    """

    def __init__(self, console: Console, label: str = "") -> None:
        self._console = console
        self._label = label
        self._progress = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[count]}"),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self._run: RunOverview | None = None
        self._rounds: TaskID | None = None
        self._models: TaskID | None = None
        self._done, self._clients, self._facts = 0, 0, ""

    def __enter__(self) -> "ProgressBars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def on_start(self, run: RunOverview, history: list[RoundRecord]) -> None:
        """Show the bar, filled up to the last recorded round."""
        self._run, self._done = run, history[-1]["round"] if history else 0
        self._rounds = self._progress.add_task(self._label or run.method, total=run.rounds, count="", facts="")
        self._move()

    def on_client(self, round_: int, client: int) -> None:  # noqa: ARG002
        """Move the bar by a client's share of the round."""
        self._clients += 1
        self._move()

    def on_round(self, record: RoundRecord) -> None:
        """Move the bar to the end of the round and show the newest accuracy."""
        self._done, self._clients = record["round"], 0
        self._facts = round_facts(record)
        self._move()

    def on_personal_model(self, done: int, total: int) -> None:
        """Show a second bar that counts personal models."""
        if self._models is None:
            self._models = self._progress.add_task("  personal models", total=total, count="", facts="")
        self._progress.update(self._models, completed=done, count=f"{done}/{total}")

    def on_note(self, text: str) -> None:
        """Print the note above the bars."""
        self._console.print(text, markup=False, highlight=False, emoji=False)

    def _move(self) -> None:
        run = self._run
        if run is None or self._rounds is None:
            return
        # The last tenth of a round is for what comes after the training.
        share = 0.9 * min(1.0, self._clients / run.clients_per_round)
        completed = min(float(run.rounds), self._done + share)
        count = f"{self._done}/{run.rounds}"
        self._progress.update(self._rounds, completed=completed, count=count, facts=self._facts)


class ProgressLines(RunListener):
    """Plain lines for logs: one per round, but no more than one per second."""

    def __init__(self, console: Console, label: str = "") -> None:
        self._console = console
        self._label = label
        self._rounds = 0
        self._last_line = 0.0
        self._pace = Pace()
        self._first_models: tuple[float, int] | None = None

    def on_start(self, run: RunOverview, history: list[RoundRecord]) -> None:
        """Print what the run is, and after which round it goes on."""
        self._rounds = run.rounds
        self._pace.start()
        self._print(run.description)
        if history:
            self._print(f"going on after round {history[-1]['round']}")

    def on_round(self, record: RoundRecord) -> None:
        """Print a line, unless the last line is less than a second old. The last round always has a line."""
        left, now = self._pace.left(record["round"], self._rounds), time.monotonic()
        is_last = record["round"] == self._rounds or STOPPED in record
        if now - self._last_line < 1.0 and not is_last:
            return
        self._last_line = now
        accuracy = "  accuracy " if record.get("test_accuracy") is not None else "  "
        self._print(f"round {record['round']}/{self._rounds}{accuracy}{round_facts(record)}  {left:.0f} s left")

    def on_personal_model(self, done: int, total: int) -> None:
        """Print a line, unless the last line is less than a second old. The last client always has a line."""
        now = time.monotonic()
        self._first_models = began, before = self._first_models or (now, done)
        if now - self._last_line >= 1.0 or done == total:
            self._last_line = now
            left = f"  {(now - began) / (done - before) * (total - done):.0f} s left" if done > before else ""
            self._print(f"personal models of {done}/{total} clients measured{left}")

    def on_note(self, text: str) -> None:
        """Print the note."""
        self._print(text)

    def _print(self, text: str) -> None:
        prefix = f"[{self._label}] " if self._label else ""
        self._console.print(prefix + text, markup=False, highlight=False, emoji=False, soft_wrap=True)


class UniqueNotes(ListenerGroup):
    """Passes every call on to a listener, but a note only if it is not in `seen`. Several runs can share `seen`."""

    def __init__(self, listener: RunListener, seen: set[str]) -> None:
        super().__init__((listener,))
        self._seen = seen

    def on_note(self, text: str) -> None:
        """Pass a new note on."""
        if text not in self._seen:
            self._seen.add(text)
            super().on_note(text)


@contextlib.contextmanager
def progress_listener(console: Console, *, quiet: bool, label: str = "") -> Iterator[RunListener]:
    """The listener that fits the output: bars on a terminal, lines elsewhere, nothing if `quiet`."""
    if quiet:
        yield RunListener()
    elif console.is_terminal:
        with ProgressBars(console, label) as bars:
            yield bars
    else:
        yield ProgressLines(console, label)


@contextlib.contextmanager
def run_listener(
    progress: Progress, listener: RunListener | None, callbacks: Sequence[Callback], *, speaks: bool, label: str = ""
) -> Iterator[RunListener]:
    """The listener of a run from Python: what shows its progress, the user's listener and the callbacks.

    If neither the progress nor a listener of the user shows notes, they are logged. A process that does not speak, such
    as a rank other than 0, shows and logs nothing. The `label` tells the run from others.
    """
    with contextlib.ExitStack() as inside:
        shown = inside.enter_context(_progress_listener(progress, label)) if speaks else None
        otherwise = NoteLogger() if speaks else RunListener()
        listeners = [candidate for candidate in (shown, listener) if candidate is not None] or [otherwise]
        yield with_callbacks(listeners[0] if len(listeners) == 1 else ListenerGroup(listeners), callbacks)


def progress_console(progress: Progress) -> Console | None:
    """Where the progress is written, None if it is not shown: the error output, so that output stays clean."""
    if progress not in (True, False, "auto"):
        raise Misconfigured(f"progress = {progress!r} is not allowed; expected True, False or 'auto'.")
    console = Console(stderr=True)
    shows = progress is True or (progress == "auto" and (console.is_terminal or in_notebook()))
    return console if shows else None


@contextlib.contextmanager
def _progress_listener(progress: Progress, label: str) -> Iterator[RunListener | None]:
    """What shows the progress, None if nothing does."""
    console = progress_console(progress)
    if console is None:
        yield None
    elif in_notebook():
        with contextlib.closing(NotebookProgress(label)) as notebook:
            yield notebook
    else:
        with progress_listener(console, quiet=False, label=label) as listener:
            yield listener
