"""A run's folder: configuration, history and results, written so that a kill at any moment loses nothing."""

import fcntl
import json
import math
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from fedblade.core.errors import CorruptFile, Misconfigured
from fedblade.core.fields import Field
from fedblade.core.files import cannot_write, write_atomic
from fedblade.core.nested import dotted
from fedblade.results._fields import descriptions

CONFIG, HISTORY, SUMMARY, PARTITION = "config.toml", "history.jsonl", "summary.json", "partition.json"
CLIENTS, MODEL, CHECKPOINTS, LOCK = "clients.jsonl", "model.safetensors", "checkpoints", ".lock"
DIAGNOSTICS, METRICS = "diagnostics.jsonl", "metrics.json"


class RunDirectory:
    """One run on disk, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    @property
    def exists(self) -> bool:
        """Whether the folder holds a run."""
        return (self.path / CONFIG).is_file()

    @property
    def checkpoints(self) -> Path:
        """Folder of the saved states."""
        return self.path / CHECKPOINTS

    def stored_config(self) -> dict[str, Any]:
        """The configuration the run was started with."""
        try:
            return tomllib.loads((self.path / CONFIG).read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise CorruptFile(f"'{self.path / CONFIG}' cannot be read: {error}. Start a new run elsewhere.") from error

    def check(self, config: Mapping[str, Any], *, resume: bool) -> None:
        """Refuse a folder that cannot take this run, without touching it."""
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
        """Take the folder for a run with this configuration, new or, with `resume`, begun."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Misconfigured(
                f"cannot make the folder '{self.path}': {error.strerror}. Choose another --out."
            ) from error
        self._take_lock()
        self.check(config, resume=resume)
        if not self.exists:
            self.write(CONFIG, tomli_w.dumps(config))
        self.checkpoints.mkdir(exist_ok=True)
        # Not the folders below: there is one for every client that has state, and the store sweeps those it writes to.
        for folder in (self.path, self.checkpoints):
            for left in folder.glob(".*.tmp"):
                left.unlink(missing_ok=True)

    def close(self) -> None:
        """Let other processes have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, name: str, content: str) -> None:
        """Write a text file of the run atomically; a full disk stops the run and leaves the old file."""
        try:
            write_atomic(self.path / name, content)
        except OSError as error:
            raise cannot_write(self.path / name, error) from error

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a JSON file; numbers that JSON cannot hold become null."""
        self.write(name, json.dumps(_json_safe(value), indent=2) + "\n")

    def write_fields(self, fields: Iterable[Field]) -> None:
        """Describe the numbers that the run's metrics write, for everything that shows them."""
        self.write_json(METRICS, descriptions(fields))

    def read_json(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the run, or None if it is not there or torn."""
        try:
            value = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        """Add one whole line, or none: what a full disk took of it is cut off again."""
        path = self.path / name
        line = (json.dumps(_json_safe(row)) + "\n").encode()
        try:
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
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

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Whole lines in order; a torn last line is left out."""
        path = self.path / name
        rows: list[dict[str, Any]] = []
        for line in path.read_bytes().splitlines() if path.is_file() else ():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
        return rows

    def rewrite(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace a file of lines, so that lines to come follow whole ones."""
        self.write(name, "".join(json.dumps(_json_safe(row)) + "\n" for row in rows))

    def history(self) -> list[dict[str, Any]]:
        """The rounds on record."""
        return self.rows(HISTORY)

    def cut_history(self, rounds: int) -> list[dict[str, Any]]:
        """Keep the first `rounds` rounds, so that rounds done again are not written twice."""
        rows = [row for row in self.history() if row["round"] <= rounds]
        if len(rows) != rounds:
            raise CorruptFile(
                f"'{self.path / HISTORY}' has {len(rows)} rounds, the checkpoint {rounds}. Start a new run elsewhere."
            )
        self.rewrite(HISTORY, rows)
        if (self.path / DIAGNOSTICS).is_file():
            self.rewrite(DIAGNOSTICS, [row for row in self.rows(DIAGNOSTICS) if row["round"] <= rounds])
        return rows

    def _check_same(self, config: Mapping[str, Any]) -> None:
        stored, given = dotted(self.stored_config()), dotted(tomllib.loads(tomli_w.dumps(config)))
        for key in sorted(stored.keys() | given.keys()):
            if stored.get(key) != given.get(key):
                raise Misconfigured(
                    f"'{self.path}' was started with {key} = {stored.get(key)!r}, now it is {given.get(key)!r}. "
                    f"Resume with the same configuration, or choose another --out."
                )

    def _take_lock(self) -> None:
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise Misconfigured(
                f"'{self.path}' is in use by another process. Wait for it or choose another --out."
            ) from error


def _json_safe(value: Any) -> Any:
    """NaN and infinities as None, everything else unchanged."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _json_safe(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_json_safe(each) for each in value]
    return value
