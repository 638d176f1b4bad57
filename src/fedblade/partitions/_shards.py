"""Equal shards of single classes dealt at random, and the variant that removes a class for a number of rounds."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import partitions
from fedblade.partitions._base import Partitioner, Request
from fedblade.partitions._checks import as_whole
from fedblade.partitions._split import TABLE, Removal, Split

_EMPTY_REMEDY = "A class has fewer samples than shards: use fewer clients."


@partitions.register("shards")
@dataclass(frozen=True)
class Shards(Partitioner):
    """Each client is dealt `shards_per_client` equal shards, each of one class; balanced classes give equal sizes.

    Every class is cut into s·K/C shards; if that is no whole number, some classes have one shard more. Two shards of a
    client may be of the same class. Classes without training samples are left out.
    """

    shards_per_client: int = 2
    empty_remedy: ClassVar[str] = _EMPTY_REMEDY

    def __post_init__(self) -> None:
        as_whole("shards_per_client", self.shards_per_client, 1)

    def divide(self, request: Request) -> Split:
        present = np.flatnonzero(request.class_sizes())
        clients, per_client = request.num_clients, self.shards_per_client
        num_shards = clients * per_client
        if num_shards < len(present):
            raise Misconfigured(
                f"num_clients={clients} with shards_per_client={per_client} makes {num_shards} shards for "
                f"{len(present)} classes. Make their product at least {len(present)}."
            )
        per_class = np.diff(np.arange(len(present) + 1) * num_shards // len(present))
        dealt = request.generator(TABLE).permutation(np.repeat(present, per_class))
        cells = np.repeat(np.arange(clients), per_client) * request.num_classes + dealt
        flat = np.bincount(cells, minlength=clients * request.num_classes)
        return request.by_shares(flat.reshape(clients, request.num_classes))


@partitions.register("stochastic_removal")
@dataclass(frozen=True)
class StochasticRemoval(Partitioner):
    """Shards, but each client trains without one of its classes, drawn again every `every` rounds.

    The removed class comes back at the next draw. A client with only one class keeps it.
    """

    shards_per_client: int = 10
    every: int = 10
    empty_remedy: ClassVar[str] = _EMPTY_REMEDY

    def __post_init__(self) -> None:
        as_whole("shards_per_client", self.shards_per_client, 1)
        as_whole("every", self.every, 1)

    def divide(self, request: Request) -> Split:
        dealt = Shards(self.shards_per_client).divide(request)
        return replace(dealt, removal=Removal(self.every, request.seed))
