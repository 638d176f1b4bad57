"""The SuperLink's database, an SQLite file of flwr 1.41: who is registered, and what can be thrown away.

This module loads nothing of flwr, because the supervisor must stay small.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedblade.core.errors import RunFailed

UNREGISTERED = "unregistered"
"""State of a node whose key was withdrawn."""
_ONLINE = "online"
_IN_TRANSIT = (
    "message_ins",
    "message_res",
    "object_push_session_pending",
    "object_push_session_roots",
    "object_push_sessions",
    "run_objects",
    "object_children",
    "objects",
)
"""Tables of messages and of the arrays in them; a row comes before the rows that it refers to."""
_WAIT_SECONDS = 5.0


@dataclass(frozen=True)
class KnownNode:
    """A node that the SuperLink's database lists; `public_key` is its key in PEM format."""

    node_id: str
    public_key: bytes
    is_online: bool


def known_nodes(database: Path) -> list[KnownNode]:
    """The registered nodes in the database of a SuperLink, which may be running."""
    with _open(database, "ro") as connection:
        rows = connection.execute(
            "SELECT node_id, public_key, status, online_until FROM node WHERE status != ?", (UNREGISTERED,)
        ).fetchall()
    now = time.time()
    return [
        KnownNode(_unsigned(number), bytes(key or b""), status == _ONLINE and (until or 0.0) > now)
        for number, key, status, until in rows
    ]


def drop_messages(database: Path) -> None:
    """Throw away messages that nobody will fetch any more, and give their space back to the disk.

    Flower deletes a message when it has been fetched. Messages of a run that was stopped, and replies that came too
    late, would stay for ever. This must only be called while the SuperLink does not run: no run is alive then.
    """
    if not database.is_file():
        return
    with _open(database, "rw") as connection:
        connection.isolation_level = None
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        connection.execute("BEGIN IMMEDIATE")
        for table in _IN_TRANSIT:
            if table in there:
                connection.execute(f'DELETE FROM "{table}"')  # noqa: S608 - the names are those above
        connection.execute("COMMIT")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@contextlib.contextmanager
def _open(database: Path, mode: str) -> Iterator[sqlite3.Connection]:
    try:
        address = f"{database.as_uri()}?mode={mode}"
        with contextlib.closing(sqlite3.connect(address, _WAIT_SECONDS, uri=True)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise RunFailed(
            f"the SuperLink's database '{database}' cannot be used: {error}. Restore it from the backup."
        ) from error


def _unsigned(number: int) -> str:
    """A node's id as Flower shows it; the database holds it as a signed number."""
    return str(number % 2**64)
