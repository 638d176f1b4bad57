"""Clients with a fixed number of classes; the first class of client i is i mod C."""

from dataclasses import dataclass

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import partitions
from fedblade.partitions._base import Partitioner, Request
from fedblade.partitions._checks import as_whole
from fedblade.partitions._pathological import pick_classes, refuse_too_many, share_evenly
from fedblade.partitions._split import TABLE, Split


@partitions.register("labels")
@dataclass(frozen=True)
class Labels(Partitioner):
    """Client i holds class i mod C and `classes_per_client` - 1 random others; holders of a class share it evenly.

    The others are drawn uniformly, without repeats within a client. Classes without training samples are left out.
    With fewer clients than classes a class may have no holder, which is an error.
    """

    classes_per_client: int = 2

    def __post_init__(self) -> None:
        as_whole("classes_per_client", self.classes_per_client, 1)

    def divide(self, request: Request) -> Split:
        present = np.flatnonzero(request.class_sizes())
        refuse_too_many(self.classes_per_client, len(present))
        clients = np.arange(request.num_clients)
        first = (clients, clients % len(present))
        picks = pick_classes(
            request.generator(TABLE), (request.num_clients, len(present)), self.classes_per_client, first
        )
        missing = np.setdiff1d(np.arange(len(present)), picks)
        if len(missing):
            raise Misconfigured(
                f"none of num_clients={request.num_clients} holds {len(missing)} of {len(present)} classes (first: "
                f"class {present[missing[0]]}). Use {len(present)} clients or more, or partition 'pathological', which "
                f"gives every class to a client."
            )
        return share_evenly(request, present[picks])
