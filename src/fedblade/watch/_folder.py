"""The runs of a folder, read again when their files change."""

from collections.abc import Mapping
from pathlib import Path

from fedblade.results import (
    HISTORY,
    IN_PROGRESS,
    RECORD_FILES,
    SUMMARY,
    RunRecord,
    read_runs,
    run_folders,
    unreadable_note,
)
from fedblade.watch._pace import Pace

Stamps = Mapping[str, tuple[int, int, int]]
"""For every file that exists: the time of its last change (nanoseconds), its size and its inode."""


def stamps(path: Path) -> dict[Path, Stamps]:
    """The stamps of the files of all runs at or below `path`, by folder; no file is opened."""
    return {folder: _stamps_of(folder) for folder in run_folders(path)}


def _stamps_of(folder: Path) -> Stamps:
    found = {}
    for name in RECORD_FILES:
        try:
            state = (folder / name).stat()
        except OSError:
            continue
        found[name] = (state.st_mtime_ns, state.st_size, state.st_ino)
    return found


class WatchedRun:
    """One run: its record when it was last read, and how fast its rounds come.

    `problem` says why the newest files could not be read; `record` is then the one before. `known` says whether the
    run was read at least once; before that, `record` is empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = RunRecord(folder, {}, {}, (), None)
        self.known = False
        self.problem = ""
        self.pace = Pace()
        self._stamps: Stamps = {}

    def refresh(self, newest: Stamps) -> bool:
        """Read the run again if its files have changed, and say whether they have."""
        if newest == self._stamps:
            return False
        # Stamps from before reading: a file that changes meanwhile has another stamp the next time.
        self._stamps = newest
        try:
            (newest_record,) = read_runs([self.folder])
            if self.record.history and f"{self.folder.resolve().name}/{HISTORY}" in newest_record.left_out:
                self.problem = unreadable_note([newest_record])
            else:
                self.record, self.known, self.problem = newest_record, True, ""
        except Exception as error:
            # A half-written or foreign file may cause any error, and its next change may mend it.
            self.problem = str(error)
        if self.record.history:
            self.pace.see(self.record.rounds_done, self.changed(HISTORY))
        return True

    def changed(self, *names: str) -> float:
        """The time of the last change of these files, or of all files if none is named; 0 if none exists."""
        return max((self._stamps[name][0] for name in names or RECORD_FILES if name in self._stamps), default=0) / 1e9

    def status(self, now: float) -> str:
        """The status of the run; a run that was cut short and has been resumed is in progress.

        A resumed run rewrites its history first, and keeps its old summary until it ends.
        """
        status = self.record.status
        if status in (IN_PROGRESS, "finished"):
            return status
        summarised = self.record.summary.get("rounds")
        newer = self.changed(HISTORY) > self.changed(SUMMARY)
        resumed = newer and (summarised != self.record.rounds_done or not self.silent(now))
        return IN_PROGRESS if resumed else status

    def age(self, now: float) -> float:
        """Seconds since the newest round was written."""
        return max(now - self.changed(HISTORY), 0.0)

    def silent(self, now: float) -> bool:
        """Whether no new round has come for much longer than a round usually takes."""
        return self.pace.silent(self.record, self.age(now))

    def overdue(self, now: float) -> bool:
        """Whether the run is in progress, has rounds to do and is silent."""
        planned = self.record.rounds_planned
        more = planned is None or self.record.rounds_done < planned
        return more and self.status(now) == IN_PROGRESS and self.silent(now)


class WatchedFolder:
    """All runs at or below a path; the path itself may be a run. Nothing is written there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._runs: dict[Path, WatchedRun] = {}

    def refresh(self) -> bool:
        """Read the runs that have changed, and say whether any has."""
        newest = stamps(self.path)
        changed = newest.keys() != self._runs.keys()
        self._runs = {folder: self._runs.get(folder) or WatchedRun(folder) for folder in newest}
        for folder, run in self._runs.items():
            changed |= run.refresh(newest[folder])
        return changed

    @property
    def runs(self) -> list[WatchedRun]:
        """The runs that could be read, in the order of their folders."""
        return [run for run in self._runs.values() if run.known]

    @property
    def problems(self) -> list[str]:
        """Sentences on the files that could not be read."""
        return [run.problem for run in self._runs.values() if run.problem]

    def focus(self, now: float) -> WatchedRun | None:
        """The run to show in detail: the one that changed last, of the runs in progress if there are any."""
        in_progress = [run for run in self.runs if run.status(now) == IN_PROGRESS]
        return max(in_progress or self.runs, key=WatchedRun.changed, default=None)

    def ended(self, now: float, grace: float) -> bool:
        """Whether all runs have ended.

        In a folder of several runs the next one may be about to start, so the last change must be `grace` seconds ago.
        """
        if not self.runs or any(run.status(now) == IN_PROGRESS for run in self.runs):
            return False
        single = self.runs[0].folder == self.path
        return single or now - max(map(WatchedRun.changed, self.runs)) > grace
