"""Server state, and the stores that keep the states of clients between rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from fedblade.core.errors import Misconfigured
from fedblade.core.tree import State, Tree, tree_clone


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

    def contents(self, round_: int) -> dict[str, str]:
        """By name, a digest of every file that a checkpoint of `round_` needs; called after `flush`."""

    def check(self, round_: int, contents: Mapping[str, str]) -> None:
        """Go on from the checkpoint of `round_`, which was saved with these `contents`; files must be the same."""

    def add_files(self, contents: Mapping[str, str]) -> None:
        """Take in the files, with their digests, that other processes of the run have finished in the same folder."""

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

    def contents(self, round_: int) -> dict[str, str]:  # noqa: ARG002 - no files
        """Nothing: the store has no files."""
        return {}

    def check(self, round_: int, contents: Mapping[str, str]) -> None:
        """Refuse to go on with states of files."""
        if contents:
            raise Misconfigured(f"the checkpoint of round {round_} has client states on disk. Resume it in its folder.")

    def add_files(self, contents: Mapping[str, str]) -> None:
        """Does nothing: other processes keep their states in their own memory."""

    def forget_before(self, round_: int) -> None:
        """Does nothing: only the newest state is kept."""
