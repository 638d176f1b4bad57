"""What a run folder says of itself in `folder.json`: its format, its run, and the digests of its files."""

import hashlib
import json
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fedblade._version import __version__
from fedblade.core.errors import Misconfigured
from fedblade.results._file_names import CONFIG, RECORD
from fedblade.results._json_files import json_safe, parse_object, read_bytes
from fedblade.results._migrations import migrated, newest_format, with_later_settings

NO_CONFIG = (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError)
"""Errors of a `config.toml` that is gone or damaged."""
_SEAL = "seal"


@dataclass(frozen=True)
class FolderRecord:
    """The contents of `folder.json`.

    - `run`: a digest of all that may not change in a run: settings, data, split, code. Checkpoints carry the same one.
    - `config`: the configuration that counts. `config.toml` is a copy that a user may edit.
    - `partition`: the digest of `partition.json`.
    - `unmarked`: checkpoints up to this round do not carry `run`, because an earlier version saved them.
    - `changes`: settings that were changed in the middle of the run, each with the round after which.
    - `digests`: the digests of the files of a finished run, by name; empty before the end.
    - `origin`: the `folder` and the `round` of another run that this one goes on from; empty for every other run.
    """

    run: str
    config: Mapping[str, Any]
    partition: str = ""
    unmarked: int = 0
    changes: Sequence[Mapping[str, Any]] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """The number of rounds of the run, 0 if an older version has not stored it."""
        return int(self.config.get("federation", {}).get("rounds", 0))

    def as_json(self) -> str:
        """The text of the file. Its seal is a digest of everything else in it.

        Every format has `format`, `fedblade` and the seal, so that an earlier version can tell that it is too old.
        """
        contents = {"format": newest_format(), "fedblade": __version__, **json_safe(asdict(self))}
        return json.dumps(contents | {_SEAL: _seal(contents)}, indent=2) + "\n"


def read_record(folder: Path) -> FolderRecord | None:
    """The record of a folder as today's format has it, None if there is none or if it was damaged.

    A folder of a newer format is refused.
    """
    stored = parse_object(read_bytes(folder / RECORD))
    if stored is None:
        return None
    is_whole = stored.pop(_SEAL, None) == _seal(stored)
    _refuse_newer(folder, stored, is_whole=is_whole)
    if not is_whole:
        return None
    contents = dict(migrated(stored, stored["format"]))
    contents["config"] = with_later_settings(contents["config"])
    return FolderRecord(
        **{field.name: contents[field.name] for field in fields(FolderRecord) if field.name in contents}
    )


def _refuse_newer(folder: Path, stored: Mapping[str, Any], *, is_whole: bool) -> None:
    """Refuse a newer format. A newer version may seal in another way; a damaged number alone is no newer version."""
    its_format, its_version = stored.get("format"), stored.get("fedblade")
    if type(its_format) is not int or its_format <= newest_format():
        return
    if is_whole or its_version != __version__:
        raise Misconfigured(
            f"'{folder}' was written by fedblade {its_version} in format {its_format}; this is fedblade {__version__}, "
            f"which reads formats up to {newest_format()}. Install the newer version: "
            f"pip install 'fedblade>={its_version}'."
        )


def file_digest(path: Path) -> str | None:
    """SHA-256 of a file, None if there is no such file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def changed_files(folder: Path, record: FolderRecord | None, among: Collection[str] | None = None) -> list[str]:
    """The files of a finished run with this record that were changed or removed since it ended.

    Only the files `among` these are read, by default all. `config.toml` counts as changed if it is gone or damaged. One
    that was edited has no effect on a finished run.
    """
    if record is None or not record.digests:
        return []
    digests = {name: digest for name, digest in record.digests.items() if among is None or name in among}
    changed = [name for name, digest in digests.items() if file_digest(folder / name) != digest]
    if among is not None and CONFIG not in among:
        return changed
    return [CONFIG, *changed] if config_table(folder) is None else changed


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration in `config.toml`; one of `NO_CONFIG` if it cannot be read."""
    return tomllib.loads((folder / CONFIG).read_text(encoding="utf-8"))


def config_table(folder: Path) -> dict[str, Any] | None:
    """The configuration in `config.toml`, None if it cannot be read."""
    try:
        return read_config(folder)
    except NO_CONFIG:
        return None


def _seal(contents: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()
