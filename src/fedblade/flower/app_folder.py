"""The folder of a Flower app, and where the files of the app and of its local federation are."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fedblade.core.errors import Misconfigured

CONFIG = "fedblade.toml"
"""File of an app with the configuration of its run."""
PARTS = "own_parts"
"""Package of an app for the user's own files, such as a method. (Flower does not pack a folder called `parts`.)"""
LOCAL = ".flower"
"""Folder of an app's local federation. Flower does not pack it into the app, so keys stay on this machine."""


class Place(Protocol):
    """A folder whose processes run now and are found by the folder `local`; they write to `logs`."""

    @property
    def path(self) -> Path:
        """The current folder of the processes."""

    @property
    def local(self) -> Path:
        """The folder that all processes have in their environment."""

    @property
    def logs(self) -> Path:
        """One log per process."""


@dataclass(frozen=True)
class AppFolder:
    """The folder of an app; all paths are absolute."""

    path: Path

    @property
    def quoted(self) -> str:
        """The folder as a shell reads it."""
        return shlex.quote(str(self.path))

    @property
    def local(self) -> Path:
        """Folder of everything that the local federation writes, besides runs."""
        return self.path / LOCAL

    @property
    def home(self) -> Path:
        """The value of `FLWR_HOME` for commands and for the SuperLink."""
        return self.local / "home"

    @property
    def secret(self) -> Path:
        """The secret that the SuperLink and its executor share."""
        return self.local / "secret"

    @property
    def service(self) -> Path:
        """How the coordinator of a deployed federation was started last; a local federation has no such file."""
        return self.local / "service.json"

    @property
    def start_command(self) -> str:
        """The command that starts the federation: `serve` if this is the app of a deployed one, otherwise `up`."""
        if self.service.exists():
            return f"fedblade flower serve {self.quoted}, with the --host, --port and --certs that {self.service} has"
        return f"fedblade flower up {self.quoted}"

    @property
    def certificates(self) -> Path:
        """The authority and the server's certificate."""
        return self.local / "certs"

    @property
    def logs(self) -> Path:
        """One log per process."""
        return self.local / "logs"

    @property
    def record(self) -> Path:
        """The processes that the supervisor keeps running: ids, ports, restarts."""
        return self.local / "state.json"

    @property
    def database(self) -> Path:
        """The SuperLink's memory of nodes and runs."""
        return self.local / "state.db"

    @property
    def admissions(self) -> Path:
        """The keys that were admitted, and the clients of each."""
        return self.local / "admissions.json"

    @property
    def last_run(self) -> Path:
        """The settings of the run that was started last, with its folder."""
        return self.local / "run.toml"

    def node(self, number: int) -> Path:
        """Folder of a node of a local federation, numbered from 1."""
        return self.local / "nodes" / str(number)


def find_app(folder: Path) -> AppFolder:
    """The app in a folder; refuses a folder without an app."""
    if not (folder / CONFIG).is_file():
        raise Misconfigured(
            f"'{folder}' holds no Flower app: there is no {CONFIG}. "
            f"Make one: fedblade flower init {shlex.quote(str(folder))}"
        )
    return AppFolder(folder.resolve())
