"""A folder that a run holds: no other process writes to it, and the run notices if it is removed or replaced."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fedblade.core.errors import FolderLost, Misconfigured
from fedblade.results._file_names import LOCK

if TYPE_CHECKING:
    from filelock import BaseFileLock

_DELETED = " (deleted)"
"""How Linux marks the path of a folder that was removed."""


class HeldFolder:
    """A folder as it was when the run opened it.

    The folder stays open, so that no new folder can get its number on the disk. Windows has no such handles; it does
    not let anyone rename a folder with an open lock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = None if os.name == "nt" else os.open(path, os.O_RDONLY)
        self._identity = self._present()

    @property
    def is_in_place(self) -> bool:
        """Whether the path still leads to this folder."""
        return self._present() == self._identity

    def check(self) -> None:
        """Refuse to go on if the path no longer leads to this folder."""
        if not self.is_in_place:
            raise FolderLost(
                f"the folder '{self.path}' was removed, renamed or replaced while the run was writing to it."
            )

    def moved_to(self) -> Path | None:
        """Where the folder is now, if it was renamed and the system can tell; None if it was removed."""
        try:
            place = str(Path(f"/proc/self/fd/{self._handle}").readlink())
        except OSError:
            return None
        return None if place.endswith(_DELETED) else Path(place)

    def close(self) -> None:
        """Let the folder go."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _present(self) -> tuple[int, int] | None:
        try:
            facts = self.path.stat()
        except OSError:
            return None
        return facts.st_dev, facts.st_ino


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
