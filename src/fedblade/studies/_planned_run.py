"""Runs of a study: every run has a folder, goes on if it was cut short, and is skipped if it is finished."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.results import RunDirectory
from fedblade.runs import (
    GivenObjects,
    ReuseCheck,
    RunListener,
    UniqueNotes,
    check_folder,
    code_difference,
    execute,
    finished_summary,
)

NOTHING_GIVEN = GivenObjects()
_log = logging.getLogger("fedblade.studies")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study: its label, its folder and its configuration."""

    label: str
    folder: Path
    config: RunConfig

    @property
    def directory(self) -> RunDirectory:
        """The files of the run."""
        return RunDirectory(self.folder)

    @property
    def is_finished(self) -> bool:
        """Whether the folder holds the whole run, made by today's code. `run_planned` also compares the data."""
        finished = finished_summary(self.directory, self.config) is not None
        return finished and code_difference(self.directory, self.config) is None

    @property
    def rounds_done(self) -> int:
        """The number of rounds in the folder."""
        return len(self.directory.history()) if self.folder.is_dir() else 0


def outdated_runs(runs: Sequence[PlannedRun]) -> dict[Path, str]:
    """The folders, finished or cut short, that other code than today's has made, with a sentence on the difference."""
    differences = {run.folder: code_difference(run.directory, run.config) for run in runs}
    return {folder: why for folder, why in differences.items() if why is not None}


def refuse_outdated(runs: Sequence[PlannedRun]) -> None:
    """Refuse folders that other code has made, before anything is timed or trained."""
    for why in outdated_runs(runs).values():
        raise Misconfigured(why)


def unfinished_runs(runs: Sequence[PlannedRun], given: GivenObjects = NOTHING_GIVEN) -> list[PlannedRun]:
    """The runs that are left to do, one per folder.

    A folder is refused if other code, other data or another configuration has made it. The data may be `given` from
    Python.
    """
    refuse_outdated(runs)
    named = ReuseCheck()
    for run in runs:
        dataset = given.dataset(run.config)
        today = named if dataset is None else ReuseCheck(dataset)
        today.check(run.directory, run.config)
    unfinished = {run.folder: run for run in runs if not run.is_finished}
    changes = {run.folder: check_folder(run.directory, run.config, resume=True) for run in runs}
    ignored = {
        str(change) for run in runs if run.folder not in unfinished for change in changes[run.folder] if change.is_seen
    }
    if ignored:
        asked = ", ".join(sorted(ignored))
        _log.warning("runs that have finished stay as they are, without %s. Choose another --out to do them so.", asked)
    return list(unfinished.values())


def run_planned(
    runs: Sequence[PlannedRun],
    listen: Callable[[str], AbstractContextManager[RunListener]],
    given: GivenObjects = NOTHING_GIVEN,
) -> dict[Path, str]:
    """Do the runs that are not finished, one after another in this process; returns by folder why a run failed.

    A failed run does not stop the others. `listen` makes the listener of a run from the run's label. The runs use the
    objects that are `given`.
    """
    unfinished = unfinished_runs(runs, given)
    failed: dict[Path, str] = {}
    notes_shown: set[str] = set()
    for number, run in enumerate(unfinished, start=1):
        with listen(f"{run.label} ({number}/{len(unfinished)})") as listener:
            try:
                execute(
                    run.config,
                    out=run.folder,
                    resume=True,
                    listener=UniqueNotes(listener, notes_shown),
                    dataset=given.dataset(run.config),
                    model=given.model,
                )
            except RunFailed as error:
                failed[run.folder] = str(error)
                listener.on_note(f"{run.label} failed: {error}")
    return failed
