"""Where the files of an app and of its rehearsal are."""

import contextlib
import json
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured

OWN = ".flower"
"""Folder of a rehearsal inside an app. It stays on this machine: Flower packs neither keys nor hidden state."""


@dataclass(frozen=True)
class Place:
    """An app's folder, and the places of its rehearsal in it; all paths are absolute."""

    folder: Path

    @property
    def quoted(self) -> str:
        """The folder as a shell takes it."""
        return shlex.quote(str(self.folder))

    @property
    def own(self) -> Path:
        """Folder of everything that a rehearsal writes besides runs."""
        return self.folder / OWN

    @property
    def home(self) -> Path:
        """What `FLWR_HOME` is for commands and for the SuperLink."""
        return self.own / "home"

    @property
    def certs(self) -> Path:
        """Certificates and node keys."""
        return self.own / "certs"

    @property
    def logs(self) -> Path:
        """One log per process."""
        return self.own / "logs"

    @property
    def plan(self) -> Path:
        """What the supervisor is to keep running."""
        return self.own / "plan.json"

    @property
    def state(self) -> Path:
        """What the supervisor keeps running: process ids, ports, restarts."""
        return self.own / "state.json"

    @property
    def database(self) -> Path:
        """The SuperLink's memory of nodes and runs."""
        return self.own / "state.db"

    def node(self, number: int) -> Path:
        """Folder of a node, numbered from 1: its configuration, its clients' states, its copy of the app."""
        return self.own / "nodes" / str(number)


def app_place(folder: Path) -> Place:
    """The place of the app in a folder; refuses a folder that holds none."""
    if not isinstance(_app_table(folder), Mapping):
        raise Misconfigured(
            f"'{folder}' holds no Flower app: there is no pyproject.toml with [tool.flwr.app]. "
            f"Make one: fedblade flower init {shlex.quote(str(folder))}"
        )
    return Place(folder.resolve())


@contextlib.contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Within, modules of the app in a folder are found first, as they are where Flower runs it."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _app_table(folder: Path) -> Any:
    path = folder / "pyproject.toml"
    if not path.is_file():
        return None
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("flwr", {}).get("app")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError) as error:
        raise Misconfigured(f"'{path}' cannot be read: {error}. Mend the file.") from error


def toml_table(table: Mapping[str, str | bool]) -> str:
    """Lines of TOML for plain values; Flower's commands read those that are paths from files, spaces and all."""
    return "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in table.items())
