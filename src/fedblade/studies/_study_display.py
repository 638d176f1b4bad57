"""One display for runs that are trained side by side: bars on a terminal, lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from fedblade.core.listener import ListenerGroup, RoundRecord, RunListener, RunOverview
from fedblade.core.words import plural
from fedblade.runs import progress_listener, round_facts
from fedblade.studies._estimate import time_in_words
from fedblade.studies._side_by_side import Listen

_ENOUGH = 0.05
"""No time is estimated before so much of a run is done."""


@dataclass
class _RunProgress:
    """How far a run is: the share of its rounds, when it began here, and when it ended."""

    began: float
    first_share: float
    share: float
    ended: float | None = None


class StudyProgress:
    """How far all runs of a study are, and how long they take with as many runs at a time as there are now."""

    def __init__(self, num_runs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.num_runs = num_runs
        self.clock = clock
        self._runs: list[_RunProgress] = []

    @property
    def num_ended(self) -> int:
        """Runs that have finished or failed."""
        return sum(run.ended is not None for run in self._runs)

    @property
    def share(self) -> float:
        """The work that is done, counted in runs."""
        return sum(1.0 if run.ended is not None else run.share for run in self._runs)

    def begin(self, share: float) -> _RunProgress:
        """A run begins, or goes on with a share of its rounds."""
        self._runs.append(_RunProgress(self.clock(), share, share))
        return self._runs[-1]

    def seconds_left(self) -> float | None:
        """An estimate: a run that is left takes as long as those before it, and no run is shared by several workers."""
        now = self.clock()
        done = sum(run.share - run.first_share for run in self._runs)
        active = [run for run in self._runs if run.ended is None]
        if done < _ENOUGH or not active:
            return None
        waiting = self.num_runs - len(self._runs)
        per_run = sum((now if run.ended is None else run.ended) - run.began for run in self._runs) / done
        left = [1.0 - run.share for run in active]
        return per_run * max((sum(left) + waiting) / len(active), *left, 1.0 if waiting else 0.0)

    def time_left(self) -> str:
        """The estimate in words; empty if there is none."""
        left = self.seconds_left()
        return "" if left is None else f"about {time_in_words(left)} left"


class _RunCounter(RunListener):
    """Counts the progress of one run; `show` gets the rounds that are done, all rounds, and the newest facts."""

    def __init__(self, study: StudyProgress, show: Callable[[float, int, str], None]) -> None:
        self._study = study
        self._show = show
        self._overview = RunOverview("", "", 1, 1)
        self._progress: _RunProgress | None = None
        self._rounds = self._clients = 0
        self._facts = ""

    def on_start(self, run: RunOverview, history: list[RoundRecord]) -> None:
        """The run begins with the rounds in its history."""
        self._overview, self._rounds = run, len(history)
        self._progress = self._study.begin(self._rounds / run.rounds)
        self._change()

    def on_client(self, round_: int, client: int) -> None:  # noqa: ARG002
        """A part of a round is done."""
        self._clients += 1
        self._change()

    def on_round(self, record: RoundRecord) -> None:
        """A round is done."""
        self._rounds, self._clients, self._facts = record["round"], 0, round_facts(record)
        self._change()

    def on_personal_model(self, done: int, total: int) -> None:
        """Clients' own models are measured after the last round."""
        self._facts = f"own models {done}/{total}"
        self._change()

    @property
    def state(self) -> str:
        """The rounds that are done, and the newest facts."""
        return f"{self._rounds}/{self._overview.rounds}  {self._facts}"

    def end(self) -> None:
        """The run has ended, even if it never began."""
        progress = self._progress or self._study.begin(0.0)
        progress.ended = self._study.clock()

    def _change(self) -> None:
        run = self._overview
        rounds = min(self._rounds + min(1.0, self._clients / run.clients_per_round), run.rounds)
        if self._progress is not None:
            self._progress.share = rounds / run.rounds
        self._show(rounds, run.rounds, self._facts)


@contextmanager
def study_display(console: Console, num_runs: int, *, quiet: bool) -> Iterator[Listen]:
    """Makes the listeners of runs side by side, which share the console."""
    study = StudyProgress(num_runs)
    if quiet:
        yield lambda _label: progress_listener(console, quiet=True)
    elif console.is_terminal:
        bars = _StudyBars(console, study)
        with bars.progress:
            yield bars.listen
    else:
        yield lambda label: _listen_in_lines(console, study, label)


@contextmanager
def _listen_in_lines(console: Console, study: StudyProgress, label: str) -> Iterator[RunListener]:
    """The lines of one run, and a line about all runs when this one has ended."""
    counter = _RunCounter(study, lambda *_: None)
    with progress_listener(console, quiet=False, label=label) as lines:
        yield ListenerGroup((counter, lines))
    counter.end()
    sentence = ", ".join(
        filter(None, (f"{study.num_ended} of {plural(study.num_runs, 'run')} ended", study.time_left()))
    )
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)


class _StudyBars:
    """A bar for all runs, and below it a bar for every run in training."""

    def __init__(self, console: Console, study: StudyProgress) -> None:
        self._study = study
        self.progress = Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis")),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[count]}", justify="right"),
            TextColumn("{task.fields[facts]}", table_column=Column(no_wrap=True)),
            console=console,
        )
        # At the top: if there are more bars than lines, the last ones are not shown.
        self._all = self.progress.add_task("all runs", total=study.num_runs, count=self._count(), facts="starting")

    @contextmanager
    def listen(self, label: str) -> Iterator[RunListener]:
        """The bar of a run. When the run has ended, a line above the bars stays of it."""
        task = self.progress.add_task(label, total=None, count="", facts="preparing")

        def show(rounds: float, total: int, facts: str) -> None:
            self.progress.update(task, completed=rounds, total=total, count=f"{int(rounds)}/{total}", facts=facts)
            self._show_all()

        counter = _RunCounter(self._study, show)
        yield ListenerGroup((counter, _Notes(self.progress.console)))
        counter.end()
        self.progress.remove_task(task)
        _Notes(self.progress.console).on_note(f"{label}  {counter.state}")
        self._show_all()

    def _show_all(self) -> None:
        study = self._study
        self.progress.update(self._all, completed=study.share, count=self._count(), facts=study.time_left())

    def _count(self) -> str:
        return f"{self._study.num_ended}/{self._study.num_runs}"


class _Notes(RunListener):
    """Prints the notes of a run above the bars."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def on_note(self, text: str) -> None:
        """Print the note."""
        self._console.print(text, markup=False, highlight=False, emoji=False)
