"""A split that others have reported: samples per client and class, and perhaps the samples of some clients."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.partitions._checks import Ints
from fedblade.partitions._split import Parts


@dataclass(frozen=True, eq=False)
class Reported(Parts):
    """Counts of all clients as they gave them, `held` samples of those whose data are here.

    `labels` are those of the data that are here.
    """

    reported: Ints
    labels: Ints
    held: Mapping[int, Ints] = field(default_factory=dict)

    @property
    def num_classes(self) -> int:  # type: ignore[override]
        """C."""
        return int(self.reported.shape[1])

    @property
    def num_clients(self) -> int:
        """K."""
        return len(self.reported)

    def part(self, client: int) -> Ints:
        """All samples of a client, if they are here."""
        self.check_client(client)
        if client not in self.held:
            raise Misconfigured(f"the data of client {client} are not here; they stay with the client.")
        return self.held[client]

    def counts(self, client: int, round_index: int) -> Ints:  # noqa: ARG002 - the same in all rounds
        """Samples per class [C], as reported."""
        self.check_client(client)
        found: Ints = self.reported[client]
        return found

    def sizes(self) -> Ints:
        """Samples per client [K]."""
        found: Ints = self.reported.sum(1)
        return found

    def table(self, most: int | None = None) -> Ints:
        """Samples per client and class [K, C]."""
        return self.reported[:most]

    def digest(self) -> str:
        """SHA-256 of the reported table."""
        whole = np.ascontiguousarray(self.reported, dtype=np.int64)
        return hashlib.sha256(f"{whole.shape}".encode() + whole.tobytes()).hexdigest()
