"""Files that are whole or absent."""

import os
import tempfile
import threading
from pathlib import Path

from fedblade.core.errors import RunFailed

_UMASK = threading.Lock()


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write so that a reader sees the old file or the new one, never a part, even after a power cut."""
    content = data.encode() if isinstance(data, str) else data
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files for the owner only; results are meant to be shared as the user's umask says.
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _umask() -> int:
    """The process's mask, which can be read only by setting it; of two threads at once one would leave it at 0."""
    with _UMASK:
        mask = os.umask(0)
        os.umask(mask)
    return mask


def cannot_write(path: Path, error: OSError) -> RunFailed:
    """The error for a file of a run that the disk refused."""
    return RunFailed(
        f"cannot write '{path}': {error.strerror or error}. "
        f"Free some space, then go on with --resume; everything up to the last checkpoint is kept."
    )


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
