"""A node's states of its clients, as the server knows them."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedblade.core.errors import CorruptFile
from fedblade.core.files import cannot_write
from fedblade.core.state import DiskStore
from fedblade.core.tree import State

_KEPT_RUNS = 16
_RUN = re.compile(r"[0-9a-f]{16}")


class _States(DiskStore):
    """States on disk, of which some can be dropped."""

    def drop(self, client: int, first: int, end: int) -> None:
        """Remove the states of a client of rounds from `first` to before `end`."""
        for round_ in self._rounds(client):
            if first <= round_ < end:
                self._path(client, round_).unlink(missing_ok=True)


class UsedStore:
    """The states of one client in a folder; a state whose reply was never used does not count.

    The `facts` of a request say which round's reply was the last that was used, and how many rounds back the server may
    have to go on from.
    """

    def __init__(self, folder: Path, client: int, facts: Mapping[str, Any]) -> None:
        self._folder, self._store, self._used = folder, _States(folder), facts["used"]
        self._lost = self._kept = False
        round_ = int(facts["round"])
        # Unused states would push used ones out: of what is older than the server can go back to, only one is kept.
        last = -1 if self._used is None else int(self._used[0])
        self._store.drop(client, last + 1, round_)
        self._store.forget_before(max(0, round_ - int(facts.get("oldest", 0))))

    def get(self, client: int, before_round: int) -> State | None:  # noqa: ARG002 - the server says which one
        """The state after the last round that was used; None before the first, or if it is lost."""
        if self._used is None or not self._used[1]:
            return None
        round_ = int(self._used[0])
        try:
            self._lost = not self._store.has(client, round_)
            return None if self._lost else self._store.get(client, round_ + 1)
        except CorruptFile:
            self._lost = True
            return None

    def put(self, client: int, round_: int, state: State) -> None:
        """Keep the state after a round."""
        self._kept = True
        make_run_folder(self._folder)
        self._store.put(client, round_, state)

    def put_all(self, round_: int, states: Mapping[int, State]) -> None:
        """Keep the states after a round."""
        for client, state in states.items():
            self.put(client, round_, state)

    def forget_before(self, round_: int) -> None:
        """Nodes forget by what each request says."""

    def told(self, found: dict[str, Any]) -> dict[str, Any]:
        """The facts of an answer with what happened to the client's state."""
        if self._lost:
            found["totals"]["count_lost_states"], found["steps"]["count_lost_states"] = 1.0, 1
        return found | {"kept": self._kept}


def make_run_folder(folder: Path) -> None:
    """Make a run's folder, the owner's alone; beside a new one only the runs that were kept up last stay."""
    is_new = not folder.is_dir()
    try:
        for each in (folder.parent, folder):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.utime(folder)
    except OSError as error:
        raise cannot_write(folder, error) from error
    runs = sorted(filter(_is_run, folder.parent.iterdir()), key=_last_use) if is_new else []
    for old in runs[:-_KEPT_RUNS]:
        shutil.rmtree(old, ignore_errors=True)


def _is_run(path: Path) -> bool:
    return _RUN.fullmatch(path.name) is not None and path.is_dir()


def _last_use(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:  # another process of the node was faster
        return 0.0
