"""The folder of a run. All files are written so that a kill at any moment loses no finished round."""

import tomllib
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedblade.core.errors import CorruptFile, Misconfigured
from fedblade.core.fields import Field
from fedblade.core.files import cannot_write
from fedblade.results._fields import descriptions
from fedblade.results._file_names import (
    CHECKPOINTS,
    CLIENTS,
    CONFIG,
    DEPLOYMENT,
    DIAGNOSTICS,
    EVENTS,
    FORMER,
    HISTORY,
    LOCK,
    METRICS,
    MODEL,
    PARTITION,
    RECORD,
    SUMMARY,
)
from fedblade.results._folder_files import FolderFiles
from fedblade.results._folder_lock import lock_folder
from fedblade.results._folder_record import FolderRecord, file_digest, read_record
from fedblade.results._held_folder import HeldFolder

if TYPE_CHECKING:
    from filelock import BaseFileLock

_SEALED = (PARTITION, HISTORY, DIAGNOSTICS, CLIENTS, MODEL, SUMMARY)
"""The files of a finished run that nobody may change."""


class RunDirectory(FolderFiles):
    """The folder of one run. Only one process at a time may open it; everybody may read it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.run: str | None = None
        self._lock: BaseFileLock | None = None

    @property
    def exists(self) -> bool:
        """Whether the folder holds a run."""
        return any((self.path / name).is_file() for name in (CONFIG, RECORD))

    @property
    def checkpoints(self) -> Path:
        """The folder of the saved states."""
        return self.path / CHECKPOINTS

    @property
    def record(self) -> FolderRecord | None:
        """What the folder says of itself, None if it says nothing or its record was damaged."""
        return read_record(self.path)

    def stored_config(self) -> dict[str, Any]:
        """The configuration in `config.toml`, or the recorded one if that file is gone or damaged."""
        try:
            return tomllib.loads((self.path / CONFIG).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            record = self.record
            if record is not None:
                return dict(record.config)
            raise CorruptFile(
                f"'{self.path / CONFIG}' cannot be read: {error}. Put it back as it was, or start again with --restart "
                f"and a configuration."
            ) from error

    def check(self, *, resume: bool) -> None:
        """Refuse a folder that no run can use, or that holds a run already; nothing is changed."""
        if self.path.exists() and not self.path.is_dir():
            raise Misconfigured(f"'{self.path}' is a file; expected a folder for --out.")
        if self.exists:
            if not resume:
                raise Misconfigured(
                    f"'{self.path}' already holds a run. Add --resume to go on with it, or choose another --out."
                )
        elif self.path.exists() and any(map(_belongs_to_user, self.path.iterdir())):
            raise Misconfigured(
                f"'{self.path}' is not empty and holds no run. Choose an empty or new folder for --out."
            )

    def open(self, *, resume: bool) -> None:
        """Lock the folder, make it if there is none, and hold it; with `resume` the run may have begun before."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Misconfigured(
                f"cannot make the folder '{self.path}': {error.strerror}. Choose another --out."
            ) from error
        self._lock = lock_folder(self.path)
        self.check(resume=resume)
        try:
            self.checkpoints.mkdir(exist_ok=True)
        except OSError as error:
            raise cannot_write(self.checkpoints, error) from error
        self._held = (HeldFolder(self.path), HeldFolder(self.checkpoints))
        # Not in the folders below: the store of the clients' states removes such files by itself.
        for folder in (self.path, self.checkpoints):
            for unfinished in folder.glob(".*.tmp"):
                unfinished.unlink(missing_ok=True)

    def close(self) -> None:
        """Unlock the folder and let it go."""
        for held in self._held:
            held.close()
        self._held = ()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def moved_to(self) -> Path | None:
        """Where the opened folder is now, if it was renamed; None if it was removed or nobody can tell."""
        place = self._held[0].moved_to() if self._held else None
        return place if place is not None and (place / CONFIG).is_file() else None

    def begin(self, record: FolderRecord) -> None:
        """Write what the folder says of itself, if that is new; from now on lines are copied to the journal."""
        self.run = record.run
        self.copy_lines_of(record.run)
        if self.record != record:
            self.write(RECORD, record.as_json())

    def write_fields(self, fields: Iterable[Field]) -> None:
        """Store the descriptions of the numbers that the run's metrics write."""
        self.write_json(METRICS, descriptions(fields))

    def finished_summary(self) -> dict[str, Any] | None:
        """The summary of a run that has finished, None for every other run."""
        summary = self.read_json(SUMMARY)
        return summary if summary is not None and summary.get("status") == "finished" else None

    def partition_facts(self) -> dict[str, Any] | None:
        """The contents of `partition.json`, None if there is none or if it was changed after it was written."""
        record = self.record
        if record is not None and record.partition not in ("", file_digest(self.path / PARTITION)):
            return None
        return self.read_json(PARTITION)

    def seal(self) -> None:
        """Record the digests of the files of the finished run."""
        record = self.record
        if record is not None:
            found = {name: file_digest(self.path / name) for name in _SEALED}
            digests = {name: digest for name, digest in found.items() if digest is not None}
            self.write(RECORD, replace(record, digests=digests).as_json())

    def changed_files(self) -> list[str]:
        """The files of a finished run that were changed or removed since it ended."""
        digests = {} if self.record is None else self.record.digests
        return [name for name, digest in digests.items() if file_digest(self.path / name) != digest]

    def set_aside(self, names: Collection[str] | None = None) -> Path | None:
        """Move files, by default all, into a new folder `former-1`, `former-2`, …; None if there is nothing to move."""
        items = [item for item in self.path.iterdir() if item.name != LOCK and not item.name.startswith(FORMER)]
        items = [item for item in items if names is None or item.name in names]
        if not items:
            return None
        taken = {folder.name for folder in self.path.glob(f"{FORMER}*")}
        former = self.path / next(name for n in range(1, len(taken) + 2) if (name := f"{FORMER}{n}") not in taken)
        former.mkdir()
        for item in items:
            item.rename(former / item.name)
        return former


def _belongs_to_user(item: Path) -> bool:
    """Whether a run has not made this.

    A run that ended at its start leaves an empty folder for checkpoints, and a deployed run its files about nodes.
    """
    if item.name in (DEPLOYMENT, EVENTS):
        return False
    if item.name == CHECKPOINTS and item.is_dir():
        return any(_belongs_to_user(saved) for saved in item.iterdir())
    return not item.name.startswith((".", FORMER))
