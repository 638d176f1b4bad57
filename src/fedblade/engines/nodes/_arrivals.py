"""Adds up the replies of clients, in the order of arrival or of client ids, with one reply in memory at a time."""

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from fedblade.core.tensorfile import read_tensors, write_tensors
from fedblade.core.tree import Tree
from fedblade.engines.base import RoundOutcome

Order = Literal["fixed", "arrival"]


class Arrivals:
    """The sum of the clients' replies. In the fixed order a reply that comes early waits on disk.

    `expected` are the clients in ascending id, `unpack` makes an outcome of a reply's tensors and facts. Nothing else
    may use `folder`: it is removed at the start, with the files of a process that was killed, and at the end.
    """

    def __init__(
        self,
        expected: Sequence[int],
        order: Order,
        folder: Path,
        unpack: Callable[[Mapping[str, Any], Mapping[str, Any]], RoundOutcome],
    ) -> None:
        self._expected, self._order, self._folder, self._unpack = expected, order, folder, unpack
        self._begin()

    def _begin(self) -> None:
        self._remaining = list(self._expected)
        self._on_disk: set[int] = set()
        self._outcome = RoundOutcome()
        self._added: list[int] = []
        self.clients: set[int] = set()

    def __enter__(self) -> Self:
        shutil.rmtree(self._folder, ignore_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def put(self, client: int, tensors: Tree, facts: Mapping[str, Any]) -> None:
        """Take a reply that passed all checks."""
        self.clients.add(client)
        if self._order == "arrival":
            self._add(client, tensors, facts)
            return
        if client != self._remaining[0]:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_tensors(self._file(client), tensors, facts)
            self._on_disk.add(client)
            return
        self._remaining.pop(0)
        self._add(client, tensors, facts)
        self._add_from_disk(stop_at_gap=True)

    def take_back(self, clients: Collection[int]) -> None:
        """Forget the replies of these clients. If one of them is in the sum, all replies are forgotten."""
        if self.clients.difference(self._on_disk).isdisjoint(clients):
            self._on_disk.difference_update(clients)
            self.clients.difference_update(clients)
        else:
            self._begin()

    def total(self) -> RoundOutcome:
        """The sum of all replies; entries that are kept for each client are sorted by client id."""
        self._add_from_disk(stop_at_gap=False)
        by_client = sorted(range(len(self._added)), key=self._added.__getitem__)
        return replace(self._outcome, sums=self._outcome.sums.arranged(by_client))

    def _add_from_disk(self, *, stop_at_gap: bool) -> None:
        while self._remaining and (not stop_at_gap or self._remaining[0] in self._on_disk):
            client = self._remaining.pop(0)
            if client in self._on_disk:
                self._on_disk.remove(client)
                tensors, facts = read_tensors(self._file(client))
                self._add(client, tensors, facts)
                self._file(client).unlink()

    def _add(self, client: int, tensors: Tree, facts: Mapping[str, Any]) -> None:
        outcome = self._unpack(tensors, facts)
        if outcome.sums.trees:
            self._added.append(client)
        self._outcome = self._outcome + outcome

    def _file(self, client: int) -> Path:
        return self._folder / f"{client}.safetensors"
