"""The folder of a Flower app, and where the files of the app and of its local federation are."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from fedblade.core.errors import Misconfigured

CONFIG = "fedblade.toml"
"""File of an app with the configuration of its run."""
LOCAL = ".flower"
"""Folder of an app's local federation. Flower does not pack it into the app, so keys stay on this machine."""


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
    def certificates(self) -> Path:
        """Certificates and node keys."""
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
        """Folder of a node, numbered from 1: its configuration, its clients' states, its copy of the app."""
        return self.local / "nodes" / str(number)


def find_app(folder: Path) -> AppFolder:
    """The app in a folder; refuses a folder without an app."""
    if not (folder / CONFIG).is_file():
        raise Misconfigured(
            f"'{folder}' holds no Flower app: there is no {CONFIG}. "
            f"Make one: fedblade flower init {shlex.quote(str(folder))}"
        )
    return AppFolder(folder.resolve())
