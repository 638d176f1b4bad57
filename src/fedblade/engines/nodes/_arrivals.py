"""Outcomes of clients, added as they arrive or in the order of their ids, with one of them in memory at a time."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from fedblade.core.tensorfile import read_tensors, write_tensors
from fedblade.core.tree import Tree
from fedblade.engines.base import RoundOutcome

Order = Literal["fixed", "arrival"]


class Arrivals:
    """The sum of what clients sent. In the fixed order a reply that comes early waits on disk.

    `expected` are the clients in ascending id, `unpack` makes an outcome of a reply's tensors and facts. `folder` is
    nobody else's: nothing is left there, and what a process that was killed has left is not used.
    """

    def __init__(
        self,
        expected: Sequence[int],
        order: Order,
        folder: Path,
        unpack: Callable[[Mapping[str, Any], Mapping[str, Any]], RoundOutcome],
    ) -> None:
        self._left = list(expected)
        self._order, self._folder, self._unpack = order, folder, unpack
        self._waiting: set[int] = set()
        self._outcome = RoundOutcome()
        self._rows: list[int] = []
        self.clients: set[int] = set()

    def __enter__(self) -> Self:
        shutil.rmtree(self._folder, ignore_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def put(self, client: int, tensors: Tree, facts: Mapping[str, Any]) -> None:
        """Take a reply that was admitted."""
        self.clients.add(client)
        if self._order == "arrival":
            self._add(client, tensors, facts)
            return
        if client != self._left[0]:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_tensors(self._file(client), tensors, facts)
            self._waiting.add(client)
            return
        self._left.pop(0)
        self._add(client, tensors, facts)
        self._add_waiting(stop_at_gap=True)

    def total(self) -> RoundOutcome:
        """The sum of all that came; clients that did not answer are left out, rows kept apart ascend by client."""
        self._add_waiting(stop_at_gap=False)
        places = sorted(range(len(self._rows)), key=self._rows.__getitem__)
        return replace(self._outcome, sums=self._outcome.sums.arranged(places))

    def _add_waiting(self, *, stop_at_gap: bool) -> None:
        while self._left and (not stop_at_gap or self._left[0] in self._waiting):
            client = self._left.pop(0)
            if client in self._waiting:
                self._waiting.remove(client)
                tensors, facts = read_tensors(self._file(client))
                self._add(client, tensors, facts)
                self._file(client).unlink()

    def _add(self, client: int, tensors: Tree, facts: Mapping[str, Any]) -> None:
        own = self._unpack(tensors, facts)
        if own.sums.trees:
            self._rows.append(client)
        self._outcome = self._outcome + own

    def _file(self, client: int) -> Path:
        return self._folder / f"{client}.safetensors"
