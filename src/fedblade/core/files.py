"""Files that are written as a whole or not at all."""

import contextlib
import errno
import os
import secrets
from pathlib import Path

from fedblade.core.errors import Misconfigured, RunFailed

BINARY = getattr(os, "O_BINARY", 0)
"""Keeps Windows from changing line ends; other systems have no such flag."""


_REMEDIES = {
    errno.ENOSPC: "Free some space",
    errno.EDQUOT: "Free some space, or ask for a larger quota",
    errno.EACCES: "Check the permissions of the folder",
    errno.EPERM: "Check the permissions and the attributes of the folder",
    errno.EROFS: "Make the disk writable, or choose another one",
    errno.ENAMETOOLONG: "Choose a shorter name",
    errno.ENOENT: "Put the folder back if it was moved or removed",
    errno.EEXIST: "Move what has this name away",
    errno.ENOTDIR: "Choose a path whose folders are no files",
    errno.EISDIR: "Name a file, not a folder",
    errno.ELOOP: "Remove the link that points to itself",
    errno.EMFILE: "Raise the limit of open files (ulimit -n)",
    errno.ENFILE: "Close programs that hold many files open",
}
"""What to do about an error of the operating system, by its number."""


def remedy(error: OSError) -> str:
    """What to do about a file that cannot be read or written, without a full stop."""
    return _REMEDIES.get(error.errno or 0, "Check the disk")


def write_atomic(path: Path, data: bytes | str, mode: int = 0o666) -> None:
    """Write a file so that a reader sees the old or the new content, never a part, even after a power cut.

    The user's umask takes permissions away from `mode`.
    """
    temporary = _written_beside(path, data, mode)
    try:
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_once(path: Path, data: bytes | str, mode: int = 0o666) -> None:
    """Write a file as `write_atomic` does, unless it is there, even if another process writes it at the same moment."""
    temporary = _written_beside(path, data, mode)
    try:
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def _written_beside(path: Path, data: bytes | str, mode: int) -> Path:
    """A new file with the content in the same folder."""
    # Not mkstemp: only the owner can read its files, and results get the permissions of the user's umask.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | BINARY, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def free_place(path: Path, number: int = 1) -> Path:
    """The first path that is not used of `x-1`, `x-2` and so on, from a number on."""
    while (place := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return place


def write_file(target: Path, content: bytes | str) -> Path:
    """Write a file that the user asked for, make its folder if there is none, and return its path."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, content)
    except OSError as error:
        raise Misconfigured(f"cannot write '{target}' ({error.strerror or error}). Choose another place.") from error
    return target


def cannot_write(path: Path, error: OSError) -> RunFailed:
    """The error for a file of a run that could not be written."""
    return RunFailed(
        f"cannot write '{path}': {error.strerror or error}. "
        f"{remedy(error)}, then go on with --resume; everything up to the last checkpoint is kept."
    )


def sync_folder(folder: Path) -> None:
    """Write the folder to disk, so that the new name survives a power cut. Windows needs no such call."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
