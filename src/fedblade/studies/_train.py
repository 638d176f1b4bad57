"""Trains the runs of a study: in this process one after another, or side by side in several processes."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from fedblade.runs import GivenObjects
from fedblade.studies._jobs import Jobs
from fedblade.studies._planned_run import NOTHING_GIVEN, PlannedRun, run_planned, unfinished_runs
from fedblade.studies._side_by_side import Listen, run_side_by_side

Display = Callable[[int], AbstractContextManager[Listen]]
"""Makes the listeners of so many runs side by side."""


def train_runs(
    runs: Sequence[PlannedRun], jobs: Jobs, listen: Listen, display: Display, given: GivenObjects = NOTHING_GIVEN
) -> dict[Path, str]:
    """Do the runs that are not finished; returns by folder why a run failed. A failed run does not stop the others.

    `listen` makes the listener of a run in this process, and `display` those of runs side by side.
    """
    if jobs.in_this_process:
        return run_planned(runs, listen, given)
    unfinished = unfinished_runs(runs)
    with display(len(unfinished)) as shared:
        return run_side_by_side(unfinished, jobs, shared)
