"""What a run folder says of itself in `folder.json`: its format, its run, and the digests of its files."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fedblade._version import __version__
from fedblade.core.errors import Misconfigured
from fedblade.results._file_names import RECORD
from fedblade.results._json_files import parse_object, read_bytes
from fedblade.results._line_files import json_safe

FORMAT = 1
"""The format of today's run folders. Format 0 are the folders of before `folder.json`."""
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

    def as_json(self) -> str:
        """The text of the file. Its seal is a digest of everything else in it."""
        contents = {"format": FORMAT, "fedblade": __version__, **json_safe(asdict(self))}
        return json.dumps(contents | {_SEAL: _seal(contents)}, indent=2) + "\n"


def read_record(folder: Path) -> FolderRecord | None:
    """The record of a folder, None if there is none or if it was damaged; a folder of a newer format is refused."""
    stored = parse_object(read_bytes(folder / RECORD))
    if stored is None:
        return None
    seal = stored.pop(_SEAL, None)
    if seal != _seal(stored):
        return None
    if stored.get("format") != FORMAT:
        raise Misconfigured(
            f"'{folder}' was written by fedblade {stored.get('fedblade')} in format {stored.get('format')}; this is "
            f"fedblade {__version__}, which reads formats up to {FORMAT}. Install the newer version: "
            f"pip install 'fedblade>={stored.get('fedblade')}'."
        )
    return FolderRecord(**{each.name: stored[each.name] for each in fields(FolderRecord) if each.name in stored})


def file_digest(path: Path) -> str | None:
    """SHA-256 of a file, None if there is no such file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _seal(contents: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()
