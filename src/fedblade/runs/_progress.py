"""Listeners that show a run on a terminal or in a log."""

import contextlib
import logging
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedblade.core.listener import ListenerGroup, RoundRecord, RunListener, RunOverview


class NoteLogger(RunListener):
    """Logs notes as warnings of the logger `fedblade`, so that a script shows them too. Shows nothing else."""

    def on_note(self, text: str) -> None:
        """Log the note."""
        logging.getLogger("fedblade").warning(text)


def round_facts(record: RoundRecord) -> str:
    """The accuracy after a round, if it was measured, and the seconds of the round."""
    seconds = f"{record['seconds']:.2f} s/round"
    accuracy = record.get("test_accuracy")
    return seconds if accuracy is None else f"{accuracy:.2f} %  {seconds}"


class ProgressBars(RunListener):
    """Live bars on a terminal: rounds, clients of the round, accuracy, seconds per round, time left."""

    def __init__(self, console: Console, label: str = "") -> None:
        self._console = console
        self._label = label
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self._rounds: TaskID | None = None
        self._clients: TaskID | None = None

    def __enter__(self) -> "ProgressBars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._clients is not None:
            self._progress.update(self._clients, visible=False)
        self._progress.stop()

    def on_start(self, run: RunOverview, history: list[RoundRecord]) -> None:
        """Show the bars, filled up to the last recorded round."""
        name = self._label or run.method
        self._rounds = self._progress.add_task(
            name, total=run.rounds, completed=history[-1]["round"] if history else 0, facts=""
        )
        self._clients = self._progress.add_task("  clients", total=run.clients_per_round, facts="")

    def on_client(self, round_: int, client: int) -> None:  # noqa: ARG002
        """Advance the bar of the round's clients."""
        if self._clients is not None:
            self._progress.advance(self._clients)

    def on_round(self, record: RoundRecord) -> None:
        """Advance the bar of the rounds and show the newest accuracy."""
        if self._rounds is None or self._clients is None:
            return
        self._progress.update(self._rounds, advance=1, facts=round_facts(record))
        self._progress.reset(self._clients, facts="")

    def on_personal_model(self, done: int, total: int) -> None:
        """Let the second bar count personal models."""
        if self._clients is not None:
            self._progress.update(self._clients, description="  personal models", completed=done, total=total)

    def on_note(self, text: str) -> None:
        """Print the note above the bars."""
        self._console.print(text, markup=False, highlight=False, emoji=False)


class ProgressLines(RunListener):
    """Plain lines for logs: one per round, but no more than one per second."""

    def __init__(self, console: Console, label: str = "") -> None:
        self._console = console
        self._label = label
        self._rounds = 0
        self._started = self._last_line = 0.0
        self._done = 0
        self._first_models: tuple[float, int] | None = None

    def on_start(self, run: RunOverview, history: list[RoundRecord]) -> None:
        """Print what the run is, and after which round it goes on."""
        self._rounds = run.rounds
        self._started = time.monotonic()
        self._print(run.description)
        if history:
            self._print(f"going on after round {history[-1]['round']}")

    def on_round(self, record: RoundRecord) -> None:
        """Print a line, unless the last line is less than a second old. The last round always has a line."""
        self._done += 1
        now = time.monotonic()
        if now - self._last_line < 1.0 and record["round"] < self._rounds:
            return
        self._last_line = now
        left = (now - self._started) / self._done * (self._rounds - record["round"])
        accuracy = "" if record.get("test_accuracy") is None else f"  accuracy {record['test_accuracy']:.2f} %"
        progress = f"round {record['round']}/{self._rounds}{accuracy}"
        self._print(f"{progress}  {record['seconds']:.2f} s/round  {left:.0f} s left")

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
