"""A store of clients' state that writes while the run goes on."""

from concurrent.futures import Future, ThreadPoolExecutor

from fedblade.core.state import ClientStore
from fedblade.core.tree import State, Tree

THREADS = 4
"""Writes at the same time: hashing, writing and waiting for the disk all leave the other threads alone."""
MOST_WAITING = 32
"""States that are held in memory for their turn; the next `put` waits."""


class WriteBehind:
    """Client state that a few threads hand to another store.

    Nobody sees the difference: `get` waits for its client's state, and `settle` for all of them. What a write raises
    is raised by the next of these calls that waits for it.
    """

    def __init__(self, store: ClientStore) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="fedblade-states")
        self._writing: dict[int, Future[None]] = {}

    def get(self, client: int, before_round: int) -> State | None:
        """The newest state a client saved in a round earlier than `before_round`, or None."""
        self._wait(client)
        return self._store.get(client, before_round)

    def put(self, client: int, round_: int, state: State) -> None:
        """Copy the state to memory; it is saved soon."""
        self._wait(client)
        while len(self._writing) >= MOST_WAITING:
            self._wait(next(iter(self._writing)))
        copies = {name: _copied(tree) for name, tree in state.items()}
        self._writing[client] = self._threads.submit(self._store.put, client, round_, copies)

    def settle(self) -> None:
        """Wait until everything is saved."""
        for client in list(self._writing):
            self._wait(client)
        self._store.settle()

    def forget_before(self, round_: int) -> None:
        """Promise that nobody will ask for a state older than the newest one before `round_`."""
        self._store.forget_before(round_)

    def _wait(self, client: int) -> None:
        writing = self._writing.pop(client, None)
        if writing is not None:
            writing.result()


def _copied(tree: Tree) -> Tree:
    return {name: leaf.detach().to("cpu", copy=True) for name, leaf in tree.items()}
