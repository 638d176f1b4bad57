"""The folder of a run. All files are written so that a kill at any moment loses no finished round."""

import json
import logging
import math
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fedblade.core.errors import CorruptFile, Misconfigured
from fedblade.core.fields import Field
from fedblade.core.files import BINARY, cannot_write, write_atomic
from fedblade.core.nested import dotted
from fedblade.results._fields import descriptions
from fedblade.results._json_files import parse_object, read_lines
from fedblade.results._unreadable import broken_lines, left_out_sentence

if TYPE_CHECKING:
    from filelock import BaseFileLock

CONFIG, HISTORY, SUMMARY, PARTITION = "config.toml", "history.jsonl", "summary.json", "partition.json"
CLIENTS, MODEL, CHECKPOINTS, LOCK = "clients.jsonl", "model.safetensors", "checkpoints", ".lock"
DIAGNOSTICS, METRICS = "diagnostics.jsonl", "metrics.json"
DEPLOYMENT, EVENTS = "deployment.json", "deployment.jsonl"
"""Only deployed runs have these: how nodes recognise the run, and what happened to the nodes."""
RECORD_FILES = (CONFIG, METRICS, PARTITION, HISTORY, DIAGNOSTICS, CLIENTS, SUMMARY)
"""The files that the record of a run is read from."""

_LOG = logging.getLogger("fedblade")


def run_folders(path: Path) -> Iterator[Path]:
    """The run folders at or below `path`, in order; what lies below a run belongs to the run."""
    for folder, below, files in os.walk(path):
        if _holds_run(files):
            below.clear()
            yield Path(folder)
        below[:] = sorted(name for name in below if not name.startswith("."))


def _holds_run(files: Sequence[str]) -> bool:
    """A history makes a run; so does a configuration beside what a run writes before its first round."""
    return HISTORY in files or (CONFIG in files and (PARTITION in files or SUMMARY in files))


class RunDirectory:
    """The folder of one run. Only one process at a time may open it; everybody may read it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: BaseFileLock | None = None

    @property
    def exists(self) -> bool:
        """Whether the folder holds a run."""
        return (self.path / CONFIG).is_file()

    @property
    def checkpoints(self) -> Path:
        """The folder of the saved states."""
        return self.path / CHECKPOINTS

    def stored_config(self) -> dict[str, Any]:
        """The configuration that the run was started with."""
        try:
            return tomllib.loads((self.path / CONFIG).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise CorruptFile(f"'{self.path / CONFIG}' cannot be read: {error}. Start a new run elsewhere.") from error

    def check(self, config: Mapping[str, Any], *, resume: bool) -> None:
        """Refuse a folder that this run cannot use; nothing is changed."""
        if self.path.exists() and not self.path.is_dir():
            raise Misconfigured(f"'{self.path}' is a file; expected a folder for --out.")
        if self.exists:
            if not resume:
                raise Misconfigured(
                    f"'{self.path}' already holds a run. Add --resume to go on with it, or choose another --out."
                )
            self._check_same(config)
        elif self.path.exists() and any(not item.name.startswith(".") for item in self.path.iterdir()):
            raise Misconfigured(
                f"'{self.path}' is not empty and holds no run. Choose an empty or new folder for --out."
            )

    def open(self, config: Mapping[str, Any], *, resume: bool) -> None:
        """Lock the folder for a run with this configuration; with `resume` the run may have begun before."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Misconfigured(
                f"cannot make the folder '{self.path}': {error.strerror}. Choose another --out."
            ) from error
        self._lock_folder()
        self.check(config, resume=resume)
        if not self.exists:
            self.write(CONFIG, tomli_w.dumps(config))
        self.checkpoints.mkdir(exist_ok=True)
        # Not in the folders below: every client with state has one, and its store removes such files by itself.
        for folder in (self.path, self.checkpoints):
            for unfinished in folder.glob(".*.tmp"):
                unfinished.unlink(missing_ok=True)

    def close(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def write(self, name: str, content: str) -> None:
        """Write a text file atomically; a full disk stops the run and leaves the old file."""
        try:
            write_atomic(self.path / name, content)
        except OSError as error:
            raise cannot_write(self.path / name, error) from error

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a JSON file; NaN and infinities become null."""
        self.write(name, json.dumps(_json_safe(value), indent=2) + "\n")

    def write_fields(self, fields: Iterable[Field]) -> None:
        """Store the descriptions of the numbers that the run's metrics write."""
        self.write_json(METRICS, descriptions(fields))

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The object in a JSON file, None if there is no such file or it is broken."""
        try:
            return parse_object((self.path / name).read_bytes())
        except OSError:
            return None

    def finished_summary(self) -> dict[str, Any] | None:
        """The summary of a run that has finished, None for every other run."""
        summary = self.read_json(SUMMARY)
        return summary if summary is not None and summary.get("status") == "finished" else None

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """Add one line. If the disk is full, the part that was written is cut off again."""
        path = self.path / name
        line = (json.dumps(_json_safe(record)) + "\n").encode()
        try:
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | BINARY, 0o644)
            size = os.fstat(handle).st_size
            try:
                written = 0
                while written < len(line):
                    written += os.write(handle, line[written:])
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, size)
                raise
            finally:
                os.close(handle)
        except OSError as error:
            raise cannot_write(path, error) from error

    def records(self, name: str) -> list[dict[str, Any]]:
        """The objects of a file of lines, in order; broken lines are left out and logged, see `read_lines`."""
        lines = read_lines(self.path / name, by_round=name in (HISTORY, DIAGNOSTICS))
        if lines.broken:
            _LOG.warning(left_out_sentence(broken_lines(lines.broken, f"{self.path}/{name}")))
        return lines.objects

    def rewrite(self, name: str, records: Sequence[Mapping[str, Any]]) -> None:
        """Replace a file of lines."""
        self.write(name, "".join(json.dumps(_json_safe(record)) + "\n" for record in records))

    def history(self) -> list[dict[str, Any]]:
        """The rounds in the history, see `records`."""
        return self.records(HISTORY)

    def rounds_on_record(self) -> int:
        """The number of rounds in the history before the first one that is missing."""
        known = {record["round"] for record in self.history()}
        return next(count for count in range(len(known) + 1) if count + 1 not in known)

    def cut_history(self, rounds: int) -> list[dict[str, Any]]:
        """Remove the rounds after the first `rounds`, which will be done again, and return the others."""
        kept = [record for record in self.history() if record["round"] <= rounds]
        if len(kept) != rounds:
            raise CorruptFile(
                f"'{self.path / HISTORY}' has {len(kept)} rounds, the checkpoint {rounds}. Start a new run elsewhere."
            )
        self.rewrite(HISTORY, kept)
        if (self.path / DIAGNOSTICS).is_file():
            arrays = [record for record in self.records(DIAGNOSTICS) if record["round"] <= rounds]
            self.rewrite(DIAGNOSTICS, arrays)
        return kept

    def _check_same(self, config: Mapping[str, Any]) -> None:
        stored, given = dotted(self.stored_config()), dotted(tomllib.loads(tomli_w.dumps(config)))
        for key in sorted(stored.keys() | given.keys()):
            if stored.get(key) != given.get(key):
                raise Misconfigured(
                    f"'{self.path}' was started with {key} = {stored.get(key)!r}, now it is {given.get(key)!r}. "
                    f"Resume with the same configuration, or choose another --out."
                )

    def _lock_folder(self) -> None:
        """Lock the folder until `close`; if the process is killed, the operating system unlocks it."""
        # Late, because whatever only reads runs does not need it.
        from filelock import FileLock, SoftFileLock, Timeout

        lock = FileLock(self.path / LOCK, timeout=0, thread_local=False)
        try:
            lock.acquire()
        except Timeout as error:
            raise Misconfigured(
                f"'{self.path}' is in use by another process. Wait for it or choose another --out."
            ) from error
        except (OSError, NotImplementedError) as error:
            # The second error means that this system offers no locks at all.
            raise Misconfigured(f"'{self.path}' cannot be locked ({error}). Choose another --out.") from error
        if isinstance(lock, SoftFileLock):
            # Only a mark in the folder, which would stay after a kill and stop the run from going on.
            lock.release()
            raise Misconfigured(f"the disk of '{self.path}' has no file locks. Choose another --out.")
        self._lock = lock


def _json_safe(value: Any) -> Any:
    """The value with None for NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _json_safe(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_json_safe(entry) for entry in value]
    return value
