"""What comparisons and sweeps in Python share: how they are trained, and what they show."""

import contextlib
import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.core.listener import ListenerGroup, RunListener
from fedblade.display import Display, data_frame, summary_row
from fedblade.results import SUMMARY, RunRecord, Table, read_runs, text_table
from fedblade.runs import (
    Callback,
    GivenObjects,
    NoteLogger,
    Progress,
    Result,
    progress_console,
    run_listener,
    stored_result,
)
from fedblade.studies._jobs import AUTO, plan_jobs
from fedblade.studies._planned_run import PlannedRun
from fedblade.studies._side_by_side import Listen, train_runs
from fedblade.studies._study_display import study_display

if TYPE_CHECKING:
    from pandas import DataFrame

NumJobs = int | Literal["auto"]


@dataclass(frozen=True, repr=False)
class Study(Display):
    """Several runs.

    - `results`: a `fedblade.Result` for each finished run; iterating gives them too.
    - `failed`: why a run failed, by its label.
    - `path`: the folder of the runs, or None.
    """

    results: tuple[Result, ...]
    failed: Mapping[str, str]
    path: Path | None
    runs: tuple[RunRecord, ...] = field(repr=False, compare=False)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> Result:
        return self.results[index]

    def __repr__(self) -> str:
        return "\n".join([self._title(), *map(text_table, self._tables())])

    def to_pandas(self) -> "DataFrame":
        """The numbers of the summaries as a frame of pandas with a row for each run; needs the extra `pandas`."""
        return data_frame([summary_row(result.summary) for result in self.results])

    def _records(self) -> Sequence[RunRecord]:
        return self.runs

    @abstractmethod
    def _numbers(self) -> Sequence[Table]:
        """The tables of the study."""

    def _tables(self) -> list[Table]:
        """The tables, with the runs that failed and the folder below the last one."""
        *before, last = self._numbers()
        failures = [f"{label} failed: {reason}" for label, reason in self.failed.items()]
        folder = [] if self.path is None else [f"folder: {self.path}"]
        return [*before, replace(last, notes=[*last.notes, *failures, *folder])]

    def _page(self) -> Path:
        return Path(f"report-{type(self).__name__.lower()}.html") if self.path is None else self.path / "report.html"


@dataclass(frozen=True)
class Trainer:
    """Trains runs of a study in Python, as the command line does."""

    given: GivenObjects
    listener: RunListener | None = None
    jobs: NumJobs = 1
    progress: Progress = "auto"
    callbacks: Sequence[Callback] = ()

    def train(self, runs: Sequence[PlannedRun]) -> dict[str, str]:
        """Do the runs that are not finished; returns by label why a run failed."""
        jobs = plan_jobs(str(self._num_jobs()), "", runs)
        failed = train_runs(runs, jobs, self._listen, self._display, self.given)
        return {run.label: failed[run.folder] for run in runs if run.folder in failed}

    def _listen(self, label: str) -> AbstractContextManager[RunListener]:
        """The listener of a run in this process."""
        return run_listener(self.progress, self.listener, self.callbacks, speaks=True, label=label)

    @contextlib.contextmanager
    def _display(self, num_runs: int) -> Iterator[Listen]:
        """The listeners of runs side by side."""
        console = progress_console(self.progress)
        if console is None:
            yield lambda _label: contextlib.nullcontext(self.listener or NoteLogger())
            return
        with study_display(console, num_runs, quiet=False) as listen:
            yield lambda label: self._with_listener(listen(label))

    @contextlib.contextmanager
    def _with_listener(self, shown: AbstractContextManager[RunListener]) -> Iterator[RunListener]:
        with shown as listener:
            yield listener if self.listener is None else ListenerGroup((listener, self.listener))

    def results(self, run: PlannedRun, *, kept: bool) -> list[Result]:
        """The result of a run if the run has finished. If its folder is not `kept`, everything is read now."""
        result = stored_result(run.directory, run.config, self.given.model)
        if result is None:
            return []
        return [result if kept else result.with_all_in_memory()]

    def _num_jobs(self) -> NumJobs:
        """One run at a time where only this process has the data, the model or the callbacks."""
        if not self.given and not self.callbacks:
            return self.jobs
        if self.jobs not in (1, AUTO):
            raise Misconfigured(
                f"jobs = {self.jobs} trains in other processes, which do not have the data set, the model or the "
                f"callbacks that were passed as objects. Leave jobs out, or name data and model as functions in a "
                f"file: dataset='file.py:function'."
            )
        return 1


@contextlib.contextmanager
def study_folder(out: str | Path | None) -> Iterator[Path]:
    """The folder of the runs; without `out` a folder that is removed at the end."""
    if out is not None:
        yield Path(out)
    else:
        with tempfile.TemporaryDirectory(prefix="fedblade-") as folder:
            yield Path(folder)


def records_of(runs: Sequence[PlannedRun], failed: Mapping[str, str]) -> tuple[RunRecord, ...]:
    """The runs as they are on disk, those that failed included; an error where none has finished."""
    folders = list(dict.fromkeys(run.folder for run in runs if (run.folder / SUMMARY).is_file()))
    if len(failed) >= len({run.folder for run in runs}) and failed:
        raise RunFailed(f"all runs failed: {next(iter(failed.values()))}")
    return tuple(read_runs(folders))


def seed_list(seeds: Any) -> list[int] | None:
    """The seeds as a list; an error where they are no whole numbers."""
    if seeds is None:
        return None
    if isinstance(seeds, str) or not isinstance(seeds, Sequence) or not seeds:
        raise Misconfigured(f"seeds = {seeds!r}; expected a list of whole numbers, such as seeds=[1, 2, 3].")
    if not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise Misconfigured(f"seeds = {list(seeds)}; expected whole numbers of at least 0, such as seeds=[1, 2, 3].")
    return list(seeds)
