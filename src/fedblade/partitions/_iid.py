"""Equal parts at random: the split without skew."""

from dataclasses import dataclass

import numpy as np

from fedblade.core.registry import partitions
from fedblade.partitions._base import Partitioner, Request
from fedblade.partitions._split import DEAL, Split


@partitions.register("iid")
@dataclass(frozen=True)
class IID(Partitioner):
    """Random parts of nearly equal size, whatever the classes: no label skew."""

    def divide(self, request: Request) -> Split:
        clients, num_samples = request.num_clients, len(request.labels)
        bounds = np.arange(clients + 1) * num_samples // clients
        owners = np.empty(num_samples, dtype=np.int64)
        shuffled = request.generator(DEAL).permutation(num_samples)
        owners[shuffled] = np.repeat(np.arange(clients), np.diff(bounds))
        # Expected shares are equal; the broadcast 1 needs no memory for K × C numbers.
        even = np.broadcast_to(np.int64(1), (clients, request.num_classes))
        return request.by_owner(owners, shares=even)
