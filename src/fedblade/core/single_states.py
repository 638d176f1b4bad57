"""One file per client and round: how nodes keep the states of their clients, and how run folders once did."""

import re
from collections.abc import Iterator
from pathlib import Path

from fedblade.core.errors import CorruptFile
from fedblade.core.files import cannot_write
from fedblade.core.state import flatten, unflatten
from fedblade.core.tensorfile import read_tensors, write_tensors
from fedblade.core.tree import State

_NAME = re.compile(r"(\d{6,})\.safetensors")


class SingleStates:
    """States of clients, one file per client and round: `0000/17/000012.safetensors` below the folder.

    Every state is on disk when `put` returns. A call lists the folder of one client only.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keep_from = 0

    def get(self, client: int, round_: int) -> State | None:
        """The state that a client saved after exactly this round."""
        try:
            tensors, _ = read_tensors(self.path(client, round_))
        except FileNotFoundError:
            return None
        except CorruptFile as error:
            raise CorruptFile(
                f"the state of client {client} is lost: {error}. It cannot be rebuilt; start the run again elsewhere."
            ) from error
        return unflatten(tensors)

    def put(self, client: int, round_: int, state: State) -> None:
        """Write the state after `round_`; remove what is not needed any more or what a killed process left."""
        path = self.path(client, round_)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(path, error) from error
        write_tensors(path, flatten(state))
        outdated = [self.path(client, r) for r in self.rounds(client) if r < self._keep_from][:-1]
        for old in (*outdated, *path.parent.glob(".*.tmp")):
            old.unlink(missing_ok=True)

    def drop(self, client: int, first: int, end: int) -> None:
        """Remove the states of a client of rounds from `first` to before `end`."""
        for round_ in self.rounds(client):
            if first <= round_ < end:
                self.path(client, round_).unlink(missing_ok=True)

    def forget_before(self, round_: int) -> None:
        """Files older than the newest before `round_` are removed when their client next writes."""
        self._keep_from = round_

    def path(self, client: int, round_: int) -> Path:
        """The file of a client's state after a round."""
        return self._folder / f"{client // 1000:04d}" / f"{client}" / f"{round_:06d}.safetensors"

    def rounds(self, client: int) -> list[int]:
        """The rounds after which a client saved a state, in order."""
        found = (_NAME.fullmatch(path.name) for path in self.path(client, 0).parent.glob("*.safetensors"))
        return sorted(int(match[1]) for match in found if match)

    def clients(self) -> Iterator[int]:
        """Every client with a folder, in order. Files and folders with other names are left alone."""
        folders = (path for path in self._folder.glob("*/*") if path.name.isdecimal() and path.is_dir())
        found = {int(path.name) for path in folders}
        return iter(sorted(client for client in found if self.path(client, 0).parent.is_dir()))
