"""A split known from reports of the clients: samples per client and class, and the samples of local clients."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.partitions._checks import Ints
from fedblade.partitions._split import Parts


@dataclass(frozen=True, eq=False)
class Reported(Parts):
    """The counts that all clients reported, and the samples `held` of clients whose data are on this machine.

    `labels` are the labels of the data on this machine. Clients that are `unknown` have not reported when the run
    begins; their rows are zero until `report`. The digest is that of the table at the beginning.
    """

    reported: Ints
    labels: Ints
    held: Mapping[int, Ints] = field(default_factory=dict)
    unknown: frozenset[int] = frozenset()
    _later: dict[int, Ints] = field(default_factory=dict)

    def report(self, client: int, counts: Ints) -> None:
        """Take the counts of a client that was unknown at the beginning."""
        if client not in self.unknown:
            raise Misconfigured(f"client {client} has reported its counts before; they may not change during a run.")
        self._later[client] = counts

    def may_train(self) -> Ints:
        """The clients that reported samples at the beginning, and those that were unknown then."""
        known = np.flatnonzero(self.reported.sum(1) > 0)
        return np.union1d(known, np.array(sorted(self.unknown), dtype=np.int64))

    @property
    def num_classes(self) -> int:  # type: ignore[override]
        """C."""
        return int(self.reported.shape[1])

    @property
    def num_clients(self) -> int:
        """K."""
        return len(self.reported)

    def part(self, client: int) -> Ints:
        """All samples of a client whose data are on this machine."""
        self.check_client(client)
        if client not in self.held:
            raise Misconfigured(f"the data of client {client} are not on this machine; they stay with the client.")
        return self.held[client]

    def counts(self, client: int, round_index: int) -> Ints:  # noqa: ARG002 - the same in all rounds
        """Samples per class [C], as reported."""
        self.check_client(client)
        counts: Ints = self._later.get(client, self.reported[client])
        return counts

    def sizes(self) -> Ints:
        """Samples per client [K]."""
        sizes: Ints = self.table().sum(1)
        return sizes

    def table(self, most: int | None = None) -> Ints:
        """Samples per client and class [K, C]."""
        table = self.reported
        if self._later:
            table = table.copy()
            for client, counts in self._later.items():
                table[client] = counts
        return table[:most]

    def digest(self) -> str:
        """SHA-256 of the table at the beginning."""
        table = np.ascontiguousarray(self.reported, dtype=np.int64)
        return hashlib.sha256(f"{table.shape}".encode() + table.tobytes()).hexdigest()
