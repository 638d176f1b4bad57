"""The lock of a run folder: only one process at a time writes to it."""

from pathlib import Path
from typing import TYPE_CHECKING

from fedblade.core.errors import Misconfigured
from fedblade.results._file_names import LOCK

if TYPE_CHECKING:
    from filelock import BaseFileLock


def lock_folder(path: Path) -> "BaseFileLock":
    """Lock the folder until the lock is released; if the process is killed, the operating system unlocks it."""
    # Late, because whatever only reads runs does not need it.
    from filelock import FileLock, SoftFileLock, Timeout

    lock = FileLock(path / LOCK, timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise Misconfigured(f"'{path}' is in use by another process. Wait for it or choose another --out.") from error
    except (OSError, NotImplementedError) as error:
        # The second error means that this system offers no locks at all.
        raise Misconfigured(f"'{path}' cannot be locked ({error}). Choose another --out.") from error
    if isinstance(lock, SoftFileLock):
        # Only a mark in the folder, which would stay after a kill and stop the run from going on.
        lock.release()
        raise Misconfigured(f"the disk of '{path}' has no file locks. Choose another --out.")
    return lock
