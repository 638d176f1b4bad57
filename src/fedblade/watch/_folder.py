"""The runs of a folder, read again when their files change."""

from collections.abc import Mapping
from pathlib import Path

from fedblade.results import HISTORY, IN_PROGRESS, READ, SUMMARY, RunRecord, read_runs, run_folders
from fedblade.watch._pace import Pace

Stamps = Mapping[str, tuple[int, int, int]]
"""Per file that is there: when it was changed (nanoseconds), its size and its inode."""


def stamps(path: Path) -> dict[Path, Stamps]:
    """The state of every run's files at or below `path`, by folder, without opening one."""
    return {folder: _stamp(folder) for folder in run_folders(path)}


def _stamp(folder: Path) -> Stamps:
    found = {}
    for name in READ:
        try:
            state = (folder / name).stat()
        except OSError:
            continue
        found[name] = (state.st_mtime_ns, state.st_size, state.st_ino)
    return found


class Watched:
    """One run: what was last read of it, and how fast its rounds come.

    `problem` says why the newest files could not be read; `record` is then what they held before. It is empty until
    they were read once, which `known` says.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = RunRecord(folder, {}, {}, (), None)
        self.known = False
        self.problem = ""
        self.pace = Pace()
        self._stamps: Stamps = {}

    def refresh(self, found: Stamps) -> bool:
        """Read the run again if its files are not as they were; whether they were read."""
        if found == self._stamps:
            return False
        # Taken before reading: what changes meanwhile differs from it the next time.
        self._stamps = found
        try:
            (self.record,) = read_runs([self.folder])
            self.known, self.problem = True, ""
        except Exception as error:
            # Whatever a half-written or foreign file makes of reading it, the next change may mend it.
            self.problem = str(error)
        if self.record.history:
            self.pace.see(self.record.rounds_done, self.changed(HISTORY))
        return True

    def changed(self, *names: str) -> float:
        """When any of these files, or any file of the run if none is named, was last written; 0 if none is there."""
        return max((self._stamps[name][0] for name in names or READ if name in self._stamps), default=0) / 1e9

    def status(self, now: float) -> str:
        """The run's status; one that was cut short and has gone on since is in progress again.

        A resumed run keeps its old summary until it ends, but rewrites its history first.
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
        """Whether the newest round is much older than rounds usually get."""
        return self.pace.silent(self.record, self.age(now))

    def overdue(self, now: float) -> bool:
        """Whether a run that should go on has been silent for too long."""
        planned = self.record.rounds_planned
        more = planned is None or self.record.rounds_done < planned
        return more and self.status(now) == IN_PROGRESS and self.silent(now)


class Folder:
    """Every run at or below a path; the path itself may be a run. Nothing is ever written to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._runs: dict[Path, Watched] = {}

    def refresh(self) -> bool:
        """Read what changed; whether anything did."""
        found = stamps(self.path)
        changed = found.keys() != self._runs.keys()
        self._runs = {folder: self._runs.get(folder) or Watched(folder) for folder in found}
        for folder, watched in self._runs.items():
            changed |= watched.refresh(found[folder])
        return changed

    @property
    def runs(self) -> list[Watched]:
        """Runs that could be read, in order of their folders."""
        return [watched for watched in self._runs.values() if watched.known]

    @property
    def problems(self) -> list[str]:
        """What could not be read, one sentence each."""
        return [watched.problem for watched in self._runs.values() if watched.problem]

    def focus(self, now: float) -> Watched | None:
        """The run to look at: of those in progress, or else of all, the one written to last."""
        going = [watched for watched in self.runs if watched.status(now) == IN_PROGRESS]
        return max(going or self.runs, key=Watched.changed, default=None)

    def ended(self, now: float, grace: float) -> bool:
        """Whether nothing is to be waited for.

        Of a folder of runs the next may be about to start, so the last change must be `grace` seconds ago.
        """
        if not self.runs or any(watched.status(now) == IN_PROGRESS for watched in self.runs):
            return False
        single = self.runs[0].folder == self.path
        return single or now - max(map(Watched.changed, self.runs)) > grace
