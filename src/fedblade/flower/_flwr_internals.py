"""Everything that relies on the inside of flwr 1.41: a new minor version of flwr is tried against this module."""

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


@dataclass(frozen=True)
class KnownNode:
    """A node that the SuperLink's database lists; `public_key` is its key in PEM format."""

    node_id: str
    public_key: bytes
    is_online: bool


def known_nodes(database: Path) -> list[KnownNode]:
    """The registered nodes in the database of a SuperLink, which may be running."""
    with _reading(database) as connection:
        rows = connection.execute(
            "SELECT node_id, public_key, status, online_until FROM node WHERE status != ?", (UNREGISTERED,)
        ).fetchall()
    now = time.time()
    return [
        KnownNode(_unsigned(number), bytes(key or b""), status == _ONLINE and (until or 0.0) > now)
        for number, key, status, until in rows
    ]


@contextlib.contextmanager
def _reading(database: Path) -> Iterator[sqlite3.Connection]:
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise RunFailed(f"the SuperLink's database '{database}' cannot be read: {error}.") from error


def _unsigned(number: int) -> str:
    """A node's id as Flower shows it; the database holds it as a signed number."""
    return str(number % 2**64)
