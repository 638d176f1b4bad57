"""Which clients take part in a run and from which round on, stored in the run folder for a resumed run."""

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedblade.core.errors import RunFailed
from fedblade.core.files import cannot_write, write_atomic
from fedblade.engines.nodes._descriptions import ClientDescription, InvalidDescription, read_descriptions
from fedblade.engines.nodes._protocol import own_protocol

Welcome = Callable[[int, ClientDescription], str | None]
"""Makes the data of a client known to the run, or returns the reason why the data do not fit it."""
_FIRST = "first_round"
_START = 0
"""The first round of the clients that were there when the run began; other rounds count from 1."""


class Members:
    """The members of a run: its clients with their data as their nodes described them, and their first rounds.

    What the run computes from the clients' data before its first round depends on the members at the start alone, so
    a resumed run computes the same. A member does not take part before its first round, also if rounds are done again.
    `token` is the name by which nodes know the run. A run that went back to a round of another run has names of before
    (`earlier`), the newest first, each with the round before which clients saved their states under that name. `path`
    is read only if the run in its folder `goes_on`; another run writes it with `save`.
    """

    def __init__(self, path: Path, num_clients: int, greeting: Mapping[str, Any], *, goes_on: bool) -> None:
        self._path = path
        self._is_stored = False
        self.token = secrets.token_hex(8)
        self._earlier: list[Any] = []
        self._first: dict[int, int] = {}
        self._welcome: Welcome = lambda *_: None
        self.clients: dict[int, ClientDescription] = {}
        if goes_on and path.is_file():
            try:
                self._read(num_clients, greeting)
            except (ValueError, KeyError, TypeError, OSError, InvalidDescription) as error:
                raise RunFailed(f"'{path}' cannot be read ({error}). Start a new run in another folder.") from error

    @property
    def names(self) -> dict[str, Any]:
        """The names by which nodes know the run; a resumed run has the same names."""
        return {"token": self.token, "earlier": self._earlier}

    @property
    def at_start(self) -> dict[int, ClientDescription]:
        """The members when the run began."""
        return {client: self.clients[client] for client in sorted(self.clients) if self._first[client] == _START}

    def begin(self, clients: Mapping[int, ClientDescription]) -> None:
        """Begin a run with these clients."""
        self.clients, self._first = dict(clients), dict.fromkeys(clients, _START)

    def welcome_joined(self, welcome: Welcome) -> None:
        """Make the clients that joined before known to a run that goes on; others are made known by `join`."""
        self._welcome = welcome
        for client in sorted(self.clients.keys() - self.at_start.keys()):
            reason = welcome(client, self.clients[client])
            if reason is not None:
                raise RunFailed(f"'{self._path}' does not fit the run: {reason}. Put the file back as it was.")

    def join(self, client: int, description: ClientDescription, round_: int) -> str | None:
        """Take a client into the run from a round on, or return why its data do not fit the run."""
        reason = self._welcome(client, description)
        if reason is None:
            self.clients[client], self._first[client] = description, round_
            self._write()
        return reason

    def takes_part(self, client: int, round_: int) -> bool:
        """Whether a client is a member in a round (from 1)."""
        return client in self._first and self._first[client] <= round_

    def save(self) -> None:
        """Store the members and the token, if they are not stored yet."""
        if not self._is_stored:
            self._write()

    def _read(self, num_clients: int, greeting: Mapping[str, Any]) -> None:
        stored = json.loads(self._path.read_text(encoding="utf-8"))
        self.token, self._earlier = str(stored["token"]), list(stored.get("earlier", []))
        members: Mapping[str, Mapping[str, Any]] = stored.get("clients", {})
        facts_of_all = own_protocol() | {"revisions": greeting["revisions"]}
        facts = {"clients": {key: {**member, **facts_of_all} for key, member in members.items()}}
        if members:
            self.clients = read_descriptions(facts, num_clients, greeting)
            self._first = {int(key): int(member[_FIRST]) for key, member in members.items()}
            self._is_stored = True

    def _write(self) -> None:
        members = {
            str(client): asdict(description) | {_FIRST: self._first[client]}
            for client, description in sorted(self.clients.items())
        }
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, json.dumps({**self.names, "clients": members}))
        except OSError as error:
            raise cannot_write(self._path, error) from error
        self._is_stored = True
