"""Server state, and the stores that keep the states of clients between rounds."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from fedblade.core.errors import CorruptFile
from fedblade.core.files import cannot_write
from fedblade.core.tensorfile import read_tensors, write_tensors
from fedblade.core.tree import State, Tree, tree_clone, tree_map

_THREADS = 4


@dataclass(frozen=True)
class ServerState:
    """The global model and the method's server state (`extra`), from round to round.

    `round` counts finished rounds, `fixed` holds the tensors that never change.
    """

    params: Tree
    buffers: Tree
    fixed: Tree
    extra: State = field(default_factory=dict)
    round: int = 0

    def replace(self, **changes: Any) -> "ServerState":
        """A copy with some fields changed."""
        return replace(self, **changes)

    def flat(self) -> Tree:
        """One tree of everything, for checkpoints and digests; `/` separates the parts."""
        return flatten({"params": self.params, "buffers": self.buffers, "fixed": self.fixed}) | flatten(
            {f"extra/{name}": tree for name, tree in self.extra.items()}
        )

    def unmoved(self, start: "ServerState") -> frozenset[str]:
        """Names of the fixed tensors that have not changed since the start; a node that made them needs no copy."""
        return frozenset(
            name
            for name, leaf in self.fixed.items()
            if leaf is start.fixed[name] or torch.equal(leaf, start.fixed[name])
        )

    def restored(self, flat: Mapping[str, Any], round_: int) -> "ServerState":
        """This state with the tensors of `flat`, which must have the same names, on this state's devices."""
        expected = self.flat()
        if expected.keys() != flat.keys():
            raise KeyError(f"checkpoint and method differ in {sorted(expected.keys() ^ flat.keys())[:4]}")
        for name, leaf in expected.items():
            if not may_hold(name, leaf.shape, flat[name].shape) or leaf.dtype != flat[name].dtype:
                raise KeyError(f"checkpoint and method differ in the shape or type of '{name}'")
        moved = {name: flat[name].to(leaf.device) for name, leaf in expected.items()}
        parts = unflatten(moved)
        return ServerState(
            params=parts.get("params", {}),
            buffers=parts.get("buffers", {}),
            fixed=parts.get("fixed", {}),
            extra={name: parts.get(f"extra/{name}", {}) for name in self.extra},
            round=round_,
        )


def may_hold(name: str, now: Sequence[int], stored: Sequence[int]) -> bool:
    """Whether a file may hold a tensor of shape `stored` where the network now has shape `now`.

    Shapes are the same, but for class vectors: older versions stored a square matrix where there are now signs.
    """
    return tuple(stored) == tuple(now) or (name in ("etf", "fixed/etf") and tuple(stored) == (*now, *now))


def flatten(state: Mapping[str, Mapping[str, Any]]) -> Tree:
    """Named trees as one tree with `name/leaf` keys."""
    return {f"{name}/{leaf}": tensor for name, tree in state.items() for leaf, tensor in tree.items()}


def unflatten(flat: Mapping[str, Any]) -> State:
    """Inverse of `flatten`."""
    state: State = {}
    for key, tensor in flat.items():
        name, _, leaf = key.rpartition("/")
        state.setdefault(name, {})[leaf] = tensor
    return state


class ClientStore(Protocol):
    """Keeps the state of clients between the rounds they take part in."""

    def get(self, client: int, before_round: int) -> State | None:
        """The newest state that was saved for a client before round `before_round`, or None."""

    def get_all(self, clients: Sequence[int], before_round: int) -> list[State | None]:
        """The newest states of many clients."""

    def put(self, client: int, round_: int, state: State) -> None:
        """Save the state of a client after `round_`."""

    def put_all(self, round_: int, states: Mapping[int, State]) -> None:
        """Save the states of many clients; their tensors must not change until `flush` returns."""

    def flush(self) -> None:
        """Return when every state is saved; an error of `put_all` may appear here."""

    def contents(self) -> dict[str, str]:
        """Files and digests."""
        return {}

    def check(self, round_: int, contents: Mapping[str, str]) -> None:
        """Check."""

    def forget_before(self, round_: int) -> None:
        """Allow the store to forget states older than the newest one before `round_`."""


class MemoryStore:
    """Client state in memory, for runs that write nothing to disk."""

    def __init__(self) -> None:
        self._states: dict[int, State] = {}

    def get(self, client: int, before_round: int) -> State | None:  # noqa: ARG002 - only the newest is kept
        """The newest state of a client."""
        return self._states.get(client)

    def get_all(self, clients: Sequence[int], before_round: int) -> list[State | None]:  # noqa: ARG002
        """The newest states of many clients."""
        return [self._states.get(client) for client in clients]

    def put(self, client: int, round_: int, state: State) -> None:  # noqa: ARG002
        """Replace the state of a client."""
        self._states[client] = {name: tree_clone(tree) for name, tree in state.items()}

    def put_all(self, round_: int, states: Mapping[int, State]) -> None:
        """Replace the states of these clients."""
        for client, state in states.items():
            self.put(client, round_, state)

    def flush(self) -> None:
        """Does nothing: `put` has saved every state."""

    def contents(self) -> dict[str, str]:
        """Files and digests."""
        return {}

    def check(self, round_: int, contents: Mapping[str, str]) -> None:
        """Check."""

    def forget_before(self, round_: int) -> None:
        """Does nothing: only the newest state is kept."""


class DiskStore:
    """Client state on disk, one file per client and round that it took part in.

    A run that resumes from round r reads the newest file before r. Files that a killed process wrote later do no harm:
    they are overwritten with the same tensors. Memory does not grow with the number of clients, and a call lists the
    folder of one client only. `put_all` writes in the background, because hashing, writing and waiting for the disk
    can overlap with training; the next `put_all` waits until everything before is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keep_from = 0
        self._pool: ThreadPoolExecutor | None = None
        self._writing: dict[int, Future[None]] = {}

    def get(self, client: int, before_round: int) -> State | None:
        """The newest state saved before `before_round`."""
        if client in self._writing:
            self._writing[client].result()
        rounds = [r for r in self._rounds(client) if r < before_round]
        if not rounds:
            return None
        try:
            tensors, _ = read_tensors(self._path(client, max(rounds)))
        except CorruptFile as error:
            raise CorruptFile(
                f"the state of client {client} is lost: {error}. It cannot be rebuilt; start the run again elsewhere."
            ) from error
        return unflatten(tensors)

    def get_all(self, clients: Sequence[int], before_round: int) -> list[State | None]:
        """The newest states of many clients, read by a few threads."""
        if len(clients) < 2:
            return [self.get(client, before_round) for client in clients]
        with ThreadPoolExecutor(_THREADS) as readers:
            return list(readers.map(lambda client: self.get(client, before_round), clients))

    def has(self, client: int, round_: int) -> bool:
        """Whether there is a state that the client saved after exactly this round."""
        return self._path(client, round_).is_file()

    def put(self, client: int, round_: int, state: State) -> None:
        """Write the state after `round_`; remove files that no checkpoint needs or that a killed process left."""
        path = self._path(client, round_)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(path, error) from error
        write_tensors(path, flatten(state))
        outdated = [self._path(client, r) for r in self._rounds(client) if r < self._keep_from][:-1]
        for old in (*outdated, *path.parent.glob(".*.tmp")):
            old.unlink(missing_ok=True)

    def put_all(self, round_: int, states: Mapping[int, State]) -> None:
        """Write the states with a few threads in the background. Tensors of a GPU are copied before this returns."""
        self.flush()
        for client, state in states.items():
            copied = {name: tree_map(lambda leaf: leaf.detach().cpu(), tree) for name, tree in state.items()}
            self._pool = self._pool or ThreadPoolExecutor(_THREADS, "client-states")
            self._writing[client] = self._pool.submit(self.put, client, round_, copied)

    def flush(self) -> None:
        """Wait until every state is written; the first error is raised after all writers have ended.

        A state that was not written is not forgotten: every later call raises the error, so no checkpoint is saved.
        """
        wait(self._writing.values())
        for written in self._writing.values():
            written.result()
        self._writing.clear()

    def contents(self) -> dict[str, str]:
        """Files and digests."""
        return {}

    def check(self, round_: int, contents: Mapping[str, str]) -> None:
        """Check."""

    def forget_before(self, round_: int) -> None:
        """Files older than the newest before `round_` are removed when their client next writes."""
        self._keep_from = round_

    def _path(self, client: int, round_: int) -> Path:
        return self._folder / f"{client // 1000:04d}" / f"{client}" / f"{round_:06d}.safetensors"

    def _rounds(self, client: int) -> list[int]:
        folder = self._path(client, 0).parent
        return sorted(int(p.stem) for p in folder.glob("*.safetensors")) if folder.is_dir() else []
