"""Digests of files. A digest is computed once and used again as long as the sizes and times of the files are equal."""

import contextlib
import hashlib
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.core.files import write_atomic
from fedblade.core.machine import cores
from fedblade.data._progress import bar

# Two changes of a file within the resolution of the clock leave the same times. So the digest of a file that was
# changed a moment ago is not stored.
SETTLED_SECONDS = 2.0


def digest_files(root: Path, files: Sequence[Path], memory: Path) -> str:
    """SHA-256 over the names (below `root`) and contents of `files`; `memory` is the folder of known digests."""
    listing = hashlib.sha256()
    newest = 0.0
    for file in files:
        try:
            stat = file.stat()
        except OSError as error:
            raise _unreadable(file, error) from error
        newest = max(newest, stat.st_mtime, stat.st_ctime)
        facts = (file.absolute(), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
        listing.update(repr(facts).encode())
    known = memory / listing.hexdigest()
    with contextlib.suppress(OSError):
        stored = known.read_text()
        if len(stored) == 64:
            return stored
    digest = _hash_all(root, files)
    if time.time() - newest > SETTLED_SECONDS:
        memory.mkdir(parents=True, exist_ok=True)
        write_atomic(known, digest)
    return digest


def _hash_all(root: Path, files: Sequence[Path]) -> str:
    total = hashlib.sha256()
    with bar("checking files", len(files)) as advance, ThreadPoolExecutor(cores()) as pool:
        for file, digest in zip(files, pool.map(hash_file, files), strict=True):
            name = file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name
            total.update(f"{name}\0{digest}\n".encode())
            advance(1)
    return total.hexdigest()


def hash_file(file: Path) -> str:
    """SHA-256 of one file."""
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: OSError) -> Misconfigured:
    return Misconfigured(f"'{file}' cannot be read ({error.strerror}). Restore the file or its rights.")
