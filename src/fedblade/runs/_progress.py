"""Listeners that show a run on a terminal, in a log file, or not at all."""

import contextlib
import logging
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedblade.core.words import plural
from fedblade.runs._driver import RoundRecord, RunListener
from fedblade.runs._setup import Setup


class Silent:
    """Shows nothing."""

    def on_start(self, setup: Setup, history: list[RoundRecord]) -> None:
        """Nothing."""

    def on_client(self, round_: int, client: int) -> None:
        """Nothing."""

    def on_round(self, row: RoundRecord) -> None:
        """Nothing."""

    def on_own_model(self, done: int, total: int) -> None:
        """Nothing."""

    def on_note(self, text: str) -> None:
        """Nothing."""


class Quiet(Silent):
    """Shows notes alone, as warnings of the logger `fedblade`: what was assumed must be heard in a script too."""

    def on_note(self, text: str) -> None:
        """Log the note."""
        logging.getLogger("fedblade").warning(text)


def describe(setup: Setup) -> str:
    """One line that says what a run is."""
    config = setup.config
    federation, local = config.federation, config.local
    length = plural(local.epochs, "local epoch") if local.steps == "none" else plural(local.steps, "local step")
    return (
        f"{config.method.name} on {setup.dataset.name}: {config.model.name}, {config.partition.name} over "
        f"{federation.num_clients} clients, {federation.clients_per_round} per round, "
        f"{plural(federation.rounds, 'round')} of {length}, seed {config.general.seed}, "
        f"engine {setup.engine.name} on {setup.test_order.device}"
    )


class Bar:
    """A live bar: rounds, clients of the round, accuracy, seconds per round, time left."""

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

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._clients is not None:
            self._progress.update(self._clients, visible=False)
        self._progress.stop()

    def on_start(self, setup: Setup, history: list[RoundRecord]) -> None:
        """Show the bars, filled up to where the run goes on."""
        federation = setup.config.federation
        name = self._label or setup.config.method.name
        self._rounds = self._progress.add_task(name, total=federation.rounds, completed=len(history), facts="")
        everyone = setup.method.participation == "all"
        cohort = len(setup.eligible) if everyone else federation.clients_per_round
        self._clients = self._progress.add_task("  clients", total=cohort, facts="")

    def on_client(self, round_: int, client: int) -> None:  # noqa: ARG002
        """Advance the round's own bar."""
        if self._clients is not None:
            self._progress.advance(self._clients)

    def on_round(self, row: RoundRecord) -> None:
        """Advance and show the newest accuracy."""
        if self._rounds is None or self._clients is None:
            return
        facts = f"{row['seconds']:.2f} s/round"
        if row.get("test_accuracy") is not None:
            facts = f"{row['test_accuracy']:.2f} %  {facts}"
        self._progress.update(self._rounds, advance=1, facts=facts)
        self._progress.reset(self._clients, facts="")

    def on_own_model(self, done: int, total: int) -> None:
        """Let the second bar count the clients' own models."""
        if self._clients is not None:
            self._progress.update(self._clients, description="  own models", completed=done, total=total)

    def on_note(self, text: str) -> None:
        """Print above the bars."""
        self._console.print(text, markup=False, highlight=False, emoji=False)


class Lines:
    """Plain lines for logs: one per round, at most about one per second."""

    def __init__(self, console: Console, label: str = "") -> None:
        self._console = console
        self._label = label
        self._rounds = 0
        self._began = self._last = 0.0
        self._done = 0

    def on_start(self, setup: Setup, history: list[RoundRecord]) -> None:
        """Say what is run and where it goes on."""
        self._rounds = setup.config.federation.rounds
        self._began = time.monotonic()
        self._say(describe(setup))
        if history:
            self._say(f"going on after round {len(history)}")

    def on_client(self, round_: int, client: int) -> None:
        """Nothing: a line per client would drown the log."""

    def on_round(self, row: RoundRecord) -> None:
        """One line, unless the last one is too recent and the run goes on."""
        self._done += 1
        now = time.monotonic()
        if now - self._last < 1.0 and row["round"] < self._rounds:
            return
        self._last = now
        left = (now - self._began) / self._done * (self._rounds - row["round"])
        accuracy = "" if row.get("test_accuracy") is None else f"  accuracy {row['test_accuracy']:.2f} %"
        self._say(f"round {row['round']}/{self._rounds}{accuracy}  {row['seconds']:.2f} s/round  {left:.0f} s left")

    def on_own_model(self, done: int, total: int) -> None:
        """One line, unless the last one is too recent and clients are left."""
        now = time.monotonic()
        if now - self._last >= 1.0 or done == total:
            self._last = now
            self._say(f"own models of {done}/{total} clients measured")

    def on_note(self, text: str) -> None:
        """Print the note."""
        self._say(text)

    def _say(self, text: str) -> None:
        prefix = f"[{self._label}] " if self._label else ""
        self._console.print(prefix + text, markup=False, highlight=False, emoji=False, soft_wrap=True)


class Once:
    """Passes everything on, but of notes that runs share only the first: `said` holds those that were passed on."""

    def __init__(self, listener: RunListener, said: set[str]) -> None:
        self._watcher, self._said = listener, said

    def on_start(self, setup: Setup, history: list[RoundRecord]) -> None:
        """Pass on."""
        self._watcher.on_start(setup, history)

    def on_client(self, round_: int, client: int) -> None:
        """Pass on."""
        self._watcher.on_client(round_, client)

    def on_round(self, row: RoundRecord) -> None:
        """Pass on."""
        self._watcher.on_round(row)

    def on_own_model(self, done: int, total: int) -> None:
        """Pass on."""
        self._watcher.on_own_model(done, total)

    def on_note(self, text: str) -> None:
        """Pass on what is new."""
        if text not in self._said:
            self._said.add(text)
            self._watcher.on_note(text)


@contextlib.contextmanager
def shown(console: Console, *, quiet: bool, label: str = "") -> Iterator[RunListener]:
    """The listener that fits the output: bars on a terminal, lines elsewhere, nothing if quiet."""
    if quiet:
        yield Silent()
    elif console.is_terminal:
        with Bar(console, label) as bar:
            yield bar
    else:
        yield Lines(console, label)
