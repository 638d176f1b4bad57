"""The states of a node's clients on its disk."""

import contextlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedblade.core.errors import CorruptFile
from fedblade.core.files import cannot_write
from fedblade.core.single_states import SingleStates
from fedblade.core.tree import State
from fedblade.flower._node_errors import failing_with

_MAX_RUNS = 16
_RUN_FOLDER = re.compile(r"[0-9a-f]{16}")


class UsedStates:
    """The states of one client in a folder; only states whose replies the server used are loaded.

    The `facts` of a request say which round's reply was used last, and how many rounds back a resumed run may restart.
    `earlier` are the folders of the runs that this run went back in, each with the round before which its states count.
    """

    def __init__(
        self, folder: Path, client: int, facts: Mapping[str, Any], earlier: Sequence[tuple[Path, int]] = ()
    ) -> None:
        self._earlier = earlier
        self._folder, self._states, self._used = folder, SingleStates(folder), facts["used"]
        self._lost = self._kept = False
        round_ = int(facts["round"])
        # Unused states are removed first: of all states older than the limit, the store keeps only the newest.
        last_used = -1 if self._used is None else int(self._used[0])
        self._states.drop(client, last_used + 1, round_)
        self._states.forget_before(max(0, round_ - int(facts.get("oldest", 0))))

    def get(self, client: int, before_round: int) -> State | None:  # noqa: ARG002 - the request names the round
        """The state after the last round that was used; None before the first such round, or if the state is lost."""
        if self._used is None or not self._used[1]:
            return None
        round_ = int(self._used[0])
        try:
            state = self._states_of(round_).get(client, round_)
        except CorruptFile:
            state = None
        self._lost = state is None
        return state

    def _states_of(self, round_: int) -> SingleStates:
        """The states among which that of a round is. What another run has saved is only read."""
        folder = self._folder
        for earlier, end in self._earlier:
            if round_ >= end:
                break
            folder = earlier
        if folder is self._folder:
            return self._states
        with contextlib.suppress(OSError):
            os.utime(folder)  # so that the folder counts as used
        return SingleStates(folder)

    def put(self, client: int, round_: int, state: State) -> None:
        """Save the state after a round."""
        self._kept = True
        with failing_with("disk"):
            make_run_folder(self._folder)
            self._states.put(client, round_, state)

    def put_all(self, round_: int, states: Mapping[int, State]) -> None:
        """Save the states after a round."""
        for client, state in states.items():
            self.put(client, round_, state)

    def get_all(self, clients: Sequence[int], before_round: int) -> list[State | None]:
        """The states of these clients."""
        return [self.get(client, before_round) for client in clients]

    def flush(self) -> None:
        """Do nothing: `put` has saved every state."""

    def contents(self, round_: int) -> dict[str, str]:  # noqa: ARG002 - no files of the server's
        """Nothing: the server's checkpoint says which replies were used, and nodes keep the states of these."""
        return {}

    def check(self, round_: int, contents: Mapping[str, str]) -> None:
        """Do nothing: every request says which state is used."""

    def add_files(self, contents: Mapping[str, str]) -> None:
        """Do nothing: a client's states are in the files of its node."""

    def forget_before(self, round_: int) -> None:
        """Do nothing: every request says which states may be removed."""

    def add_facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """The facts of a reply, with whether the client's state was saved and whether it was lost."""
        if self._lost:
            facts["totals"]["count_lost_states"], facts["steps"]["count_lost_states"] = 1.0, 1
        return facts | {"kept": self._kept}


def make_run_folder(folder: Path) -> None:
    """Make the folder of a run's states, for this user alone; only the runs that were used last keep their folders."""
    is_new = not folder.is_dir()
    try:
        for path in (folder.parent, folder):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.utime(folder)
    except OSError as error:
        raise cannot_write(folder, error) from error
    beside = (path for path in folder.parent.iterdir() if _RUN_FOLDER.fullmatch(path.name) and path.is_dir())
    runs = sorted(beside, key=_last_use) if is_new else []
    for old in runs[:-_MAX_RUNS]:
        shutil.rmtree(old, ignore_errors=True)


def _last_use(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:  # another process of the node has removed the folder
        return 0.0
