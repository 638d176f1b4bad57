"""Runs that belong together: each in a folder of its own, resumable, finished ones skipped."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.results import RunDirectory
from fedblade.runs import ReuseCheck, RunListener, UniqueNotes, check_folder, code_difference, execute


@dataclass(frozen=True)
class Cell:
    """One run of several: what it is called, where it goes and what it does."""

    label: str
    folder: Path
    config: RunConfig


def is_finished(run: Cell) -> bool:
    """Whether a run is on disk as a whole, made by today's code; its data are compared before runs start."""
    directory = RunDirectory(run.folder)
    return directory.finished_summary() is not None and code_difference(directory, run.config) is None


def outdated(runs: Sequence[Cell]) -> dict[Path, str]:
    """Runs on disk, finished or cut short, that were made by other code than today's, and a sentence on each."""
    found = {run.folder: code_difference(RunDirectory(run.folder), run.config) for run in runs}
    return {folder: why for folder, why in found.items() if why is not None}


def refuse_outdated(runs: Sequence[Cell]) -> None:
    """Refuse runs on disk that were made by other code, before anything is timed or trained."""
    for why in outdated(runs).values():
        raise Misconfigured(why)


def rounds_behind(run: Cell) -> int:
    """Rounds of a run that are done."""
    return len(RunDirectory(run.folder).history()) if run.folder.is_dir() else 0


def run_cells(runs: Sequence[Cell], watch: Callable[[str], AbstractContextManager[RunListener]]) -> dict[Path, str]:
    """Carry out the runs that are not finished, and return why some failed: one that breaks does not stop the rest.

    A run on disk, finished or cut short, that was made by other code or from other data is refused before the first one
    starts, and so is one that was cut short with another configuration.
    """
    refuse_outdated(runs)
    today = ReuseCheck()
    for run in runs:
        today.check(RunDirectory(run.folder), run.config)
    open_ = [run for run in runs if not is_finished(run)]
    for run in open_:
        check_folder(RunDirectory(run.folder), run.config, resume=True)
    failed: dict[Path, str] = {}
    said: set[str] = set()
    for number, run in enumerate(open_, start=1):
        with watch(f"{run.label} ({number}/{len(open_)})") as listener:
            try:
                execute(run.config, out=run.folder, resume=True, listener=UniqueNotes(listener, said))
            except RunFailed as error:
                failed[run.folder] = str(error)
                listener.on_note(f"{run.label} failed: {error}")
    return failed
