"""The folder of a run. All files are written so that a kill at any moment loses no finished round."""

from collections.abc import Collection, Iterable, Mapping
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
from fedblade.results._folder_record import (
    NO_CONFIG,
    FolderRecord,
    changed_files,
    config_table,
    file_digest,
    read_config,
    read_record,
)
from fedblade.results._held_folder import HeldFolder, lock_folder
from fedblade.results._json_files import json_text
from fedblade.results._migrations import with_later_settings

if TYPE_CHECKING:
    from filelock import BaseFileLock

_SEALED = (PARTITION, METRICS, HISTORY, DIAGNOSTICS, CLIENTS, MODEL, SUMMARY)
"""The files of a finished run that nobody may change."""


class RunDirectory(FolderFiles):
    """The folder of one run. Only one process at a time may open it; everybody may read it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.run: str | None = None
        self._begun: FolderRecord | None = None
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
        """What the folder says of itself, None if it says nothing or its record was damaged.

        While a run goes on in the folder, it is what the run has written, whatever became of the file.
        """
        return self._begun or read_record(self.path)

    @property
    def has_config(self) -> bool:
        """Whether `config.toml` is there and can be read."""
        return config_table(self.path) is not None

    def stored_config(self, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The configuration in `config.toml`, or the recorded one if that file is gone or damaged.

        Settings that the file lacks are those of `base`. Settings that came later are as they were when the file was
        written.
        """
        try:
            return with_later_settings(_filled(read_config(self.path), base or {}))
        except NO_CONFIG as error:
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
                    f"'{self.path}' already holds a run. Add --resume (in Python, resume=True) to go on with "
                    f"it, or choose another --out."
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
        self._held, self._begun = (), None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def moved_to(self) -> tuple[Path, Path] | None:
        """Which opened folder was renamed (that of the run, or that of its checkpoints), and where it is now.

        None if it was removed, or if nobody can tell.
        """
        lost = next((held for held in self._held if not held.is_in_place), None)
        place = None if lost is None else lost.moved_to()
        return None if lost is None or place is None or not any(place.iterdir()) else (lost.path, place)

    def begin(self, record: FolderRecord) -> None:
        """Write what the folder says of itself, if that is new; from now on lines are copied to the journal."""
        self.run, self._begun = record.run, record
        self._written[PARTITION] = record.partition
        self.copy_lines_of(record.run, record.rounds)
        self.write_if_new(RECORD, record.as_json())

    def write_fields(self, fields: Iterable[Field]) -> None:
        """Store the descriptions of the numbers that the run's metrics write."""
        self.write_if_new(METRICS, json_text(descriptions(fields)))

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
        """Record the digests of the files of the finished run, as the run has written them."""
        record = self.record
        if record is not None:
            found = {name: self._written.get(name) or file_digest(self.path / name) for name in _SEALED}
            digests = {name: digest for name, digest in found.items() if digest is not None}
            self.begin(replace(record, partition=digests[PARTITION], digests=digests))

    @property
    def is_sealed(self) -> bool:
        """Whether the digests of the finished run are written, or cannot be because an older version finished it."""
        return self.record is None or bool(self.record.digests)

    def changed_files(self, among: Collection[str] | None = None) -> list[str]:
        """The files of a finished run, or those `among` these, that were changed or removed since it ended."""
        return changed_files(self.path, self.record, among)

    @property
    def former(self) -> set[str]:
        """The names of the folders with what was in this one before."""
        return {folder.name for folder in self.path.glob(f"{FORMER}*")}

    def set_aside(self, names: Collection[str] | None = None) -> Path | None:
        """Move files, by default all, into a new folder `former-1`, `former-2`, …; None if there is nothing to move."""
        items = [item for item in self.path.iterdir() if item.name != LOCK and not item.name.startswith(FORMER)]
        items = [item for item in items if names is None or item.name in names]
        if not items:
            return None
        taken = self.former
        former = self.path / next(name for n in range(1, len(taken) + 2) if (name := f"{FORMER}{n}") not in taken)
        former.mkdir()
        # Last what makes the folder that of a run: if the process is killed before, the user can ask again.
        for item in sorted(items, key=lambda item: (item.name in (CONFIG, RECORD), item.name)):
            item.rename(former / item.name)
        return former


def _filled(table: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with the settings of `base` that it lacks; another part has other knobs, and gets none."""
    filled = {**base, **table}
    for section in table.keys() & base.keys():
        ours, theirs = table[section], base[section]
        if (
            isinstance(ours, Mapping)
            and isinstance(theirs, Mapping)
            and ours.get("name", theirs.get("name")) == theirs.get("name")
        ):
            filled[section] = {**theirs, **ours}
    return filled


def _belongs_to_user(item: Path) -> bool:
    """Whether a run has not made this.

    A run that ended at its start leaves an empty folder for checkpoints, and a deployed run its files about nodes.
    """
    if item.name in (DEPLOYMENT, EVENTS):
        return False
    if item.name == CHECKPOINTS and item.is_dir():
        return any(_belongs_to_user(saved) for saved in item.iterdir())
    return not item.name.startswith((".", FORMER))
