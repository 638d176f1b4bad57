"""Decoded data on disk: plain arrays that are mapped into memory and checked when they are opened.

A decoded copy is a folder `<name>-<key>` with one file per array and `meta.json`. The folder is written under a
temporary name and renamed when it is complete, so that no reader sees half a copy. If two processes decode at the same
time, the copy that is complete first stays.
"""

import contextlib
import errno
import json
import logging
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.files import write_atomic
from fedblade.core.machine import cores
from fedblade.data._progress import bar
from fedblade.data._source import PARTS, Array, Source, in_order
from fedblade.data._store import ArrayFile, PartWriter

VERSION = 1
_BLOCK = ArrayFile.BLOCK
# So many blocks (of 1 MiB) of an array are checked at every start: all of a small array, a sample of a large one.
_CHECKED_BLOCKS = 256
_ATTEMPTS = 3
_STALE_SECONDS = 24 * 3600
_log = logging.getLogger("fedblade.data")


class Damaged(Exception):
    """A decoded copy is incomplete or was changed."""


@dataclass(frozen=True)
class Decoded:
    """An opened copy: the contents of `meta.json`, and the arrays by name (`train-inputs`, `test-labels`, …)."""

    folder: Path
    meta: dict[str, Any]
    arrays: dict[str, Array]


def open_decoded(folder: Path, *, every_block: bool = False) -> Decoded:
    """Map the arrays of a decoded copy into memory after checking sizes and checksums; raises `Damaged`."""
    try:
        meta = json.loads((folder / "meta.json").read_text())
        shapes: dict[str, Any] = meta["arrays"]
        arrays: dict[str, Array] = {}
        for name, facts in shapes.items():
            path = folder / f"{name}.bin"
            _check(path, facts["bytes"], facts["crc32"], every_block)
            # Copy on write: torch may share the memory, and no write reaches the file.
            arrays[name] = np.memmap(path, facts["dtype"], "c", shape=tuple(facts["shape"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{folder}: {error}") from error
    return Decoded(folder, meta, arrays)


def _check(path: Path, size: int, checksums: list[int], every_block: bool) -> None:
    if path.stat().st_size != size:
        raise Damaged(f"{path} has {path.stat().st_size} bytes instead of {size}")
    count = len(checksums)
    step = 1 if every_block else -(-count // _CHECKED_BLOCKS)
    with path.open("rb") as stream:
        for block in sorted({*range(0, count, step or 1), *range(count - 1, count)}):
            stream.seek(block * _BLOCK)
            if zlib.crc32(stream.read(_BLOCK)) != checksums[block]:
                raise Damaged(f"{path} differs from what was written, near byte {block * _BLOCK}")


def open_or_build(folder: Path, name: str, source: Source, *, measure: bool, every_block: bool = False) -> Decoded:
    """The decoded copy in `folder`; a missing or damaged copy is made from `source`."""
    for _ in range(_ATTEMPTS):
        if folder.is_dir():
            try:
                return open_decoded(folder, every_block=every_block)
            except Damaged as reason:
                _log.warning("the decoded copy of '%s' is damaged (%s); decoding again", name, reason)
                _discard(folder)
        with _disk_errors_explained(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            _sweep(folder.parent)
            _build(folder, name, source, measure)
    raise Misconfigured(
        f"the decoded copy of dataset '{name}' in '{folder}' was damaged {_ATTEMPTS} times right after it was written. "
        f"Check the disk, or set XDG_CACHE_HOME to a folder on another disk."
    )


def remember_request(decoded: Decoded, request: str) -> None:
    """Write into `meta.json` that this copy was made for a request without an explicit path.

    Only such a copy may be used for the request after the original files are gone.
    """
    known = requests_in(decoded.meta)
    if request not in known:
        _add_to_meta(decoded, {"requests": [*known, request]})


def add_description(decoded: Decoded, source: Source) -> Decoded:
    """Add how the samples were stored, if an older version made the copy without this description."""
    return decoded if "pictures" in decoded.meta else _add_to_meta(decoded, {"pictures": source.describe()})


def _add_to_meta(decoded: Decoded, facts: Mapping[str, Any]) -> Decoded:
    """Add facts to a copy, and to its `meta.json` if that file can be written."""
    meta = {**decoded.meta, **facts}
    with contextlib.suppress(OSError):
        write_atomic(decoded.folder / "meta.json", json.dumps(meta))
    return replace(decoded, meta=meta)


def requests_in(meta: dict[str, Any]) -> list[str]:
    """The requests for which a copy may be used without its original files; none if it has an explicit path."""
    known = meta.get("requests")
    return known if isinstance(known, list) else []


@contextlib.contextmanager
def _disk_errors_explained(folder: Path) -> Iterator[None]:
    """Turn the error of a full disk or of missing rights into a message that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EPERM}:
            raise
        raise Misconfigured(
            f"cannot write decoded data to '{folder.parent}' ({error.strerror}). Free some space there or set "
            f"XDG_CACHE_HOME to a folder on another disk."
        ) from error


def _build(folder: Path, name: str, source: Source, measure: bool) -> None:
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
    try:
        groups: dict[str, int] = {}
        arrays: dict[str, Any] = {}
        facts: dict[str, Any] = {}
        with bar(f"decoding {name}", source.total) as advance:
            for part in PARTS:
                with PartWriter(temporary, part, groups, measure=measure and part == "train") as writer:
                    for block in in_order(source.read(part), cores()):
                        writer.add(block)
                        advance(len(block.labels))
                if not len(writer):
                    raise Misconfigured(
                        f"'{source.root}' holds no {part} samples for dataset '{name}'. Restore its files."
                    )
                arrays |= writer.facts()
                facts |= writer.statistics()
        meta = {
            "version": VERSION,
            "name": name,
            "options": source.options,
            "class_names": source.class_names,
            "pictures": source.describe(),
            "group_names": list(groups) or None,
            "arrays": arrays,
            **facts,
        }
        write_atomic(temporary / "meta.json", json.dumps(meta))
        temporary.chmod(0o755)
        _publish(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _publish(temporary: Path, folder: Path) -> None:
    """Rename the finished folder; if another process was faster, its equal copy stays."""
    try:
        temporary.rename(folder)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
        shutil.rmtree(temporary, ignore_errors=True)


def _discard(folder: Path) -> None:
    """Remove a damaged copy in one step; processes that have it open can still read it."""
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
    with contextlib.suppress(FileNotFoundError):
        folder.rename(aside / "damaged")
    shutil.rmtree(aside, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove temporary folders that killed processes left more than a day ago."""
    for folder in parent.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
