"""Clients with a fixed number of classes: every class has a client, or the first class of client i is i mod C."""

from dataclasses import dataclass

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import partitions
from fedblade.partitions._base import Partitioner, Request
from fedblade.partitions._checks import Ints, as_whole
from fedblade.partitions._split import TABLE, Split

_CHUNK_CELLS = 2**22


@partitions.register("pathological")
@dataclass(frozen=True)
class Pathological(Partitioner):
    """Each client holds exactly `classes_per_client` classes, each class split evenly among its holders.

    Clients take classes in turn until every class has a holder. All further classes are drawn uniformly, without
    repeats within a client. Classes without training samples are left out.
    """

    classes_per_client: int = 2

    def __post_init__(self) -> None:
        as_whole("classes_per_client", self.classes_per_client, 1)

    def divide(self, request: Request) -> Split:
        present = np.flatnonzero(request.class_sizes())
        self._refuse_mismatch(request.num_clients, len(present))
        # The first classes go to client 0 until it is full, the next ones to client 1, and so on.
        classes = np.arange(len(present))
        first = (classes // self.classes_per_client, classes)
        shape = (request.num_clients, len(present))
        return _share_evenly(
            request, present[_pick_classes(request.generator(TABLE), shape, self.classes_per_client, first)]
        )

    def _refuse_mismatch(self, num_clients: int, num_present: int) -> None:
        wanted = self.classes_per_client
        _refuse_too_many(wanted, num_present)
        if num_clients * wanted < num_present:
            raise Misconfigured(
                f"num_clients={num_clients} with classes_per_client={wanted} leaves some of {num_present} classes "
                f"without a client. Make their product at least {num_present}."
            )


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
        _refuse_too_many(self.classes_per_client, len(present))
        clients = np.arange(request.num_clients)
        first = (clients, clients % len(present))
        picks = _pick_classes(
            request.generator(TABLE), (request.num_clients, len(present)), self.classes_per_client, first
        )
        missing = np.setdiff1d(np.arange(len(present)), picks)
        if len(missing):
            raise Misconfigured(
                f"none of num_clients={request.num_clients} holds {len(missing)} of {len(present)} classes (first: "
                f"class {present[missing[0]]}). Use {len(present)} clients or more, or partition 'pathological', which "
                f"gives every class to a client."
            )
        return _share_evenly(request, present[picks])


def _refuse_too_many(classes_per_client: int, num_present: int) -> None:
    """Refuse more classes per client than there are."""
    if classes_per_client > num_present:
        raise Misconfigured(
            f"classes_per_client={classes_per_client} is more than the {num_present} classes there are. "
            f"Use classes_per_client={num_present} or less."
        )


def _pick_classes(
    generator: np.random.Generator, shape: tuple[int, int], wanted: int, first: tuple[Ints, Ints]
) -> Ints:
    """Draw `wanted` classes for each client without repeats: positions [K, wanted] for `shape` (clients, classes).

    `first` are pairs of clients and classes that are fixed: the client always gets the class.
    """
    clients, classes = shape
    rows = max(1, _CHUNK_CELLS // classes)
    picks = np.empty((clients, wanted), dtype=np.int64)
    for start in range(0, clients, rows):
        stop = min(start + rows, clients)
        keys = generator.random((stop - start, classes))
        in_chunk = (first[0] >= start) & (first[0] < stop)
        # The key of a fixed class is smaller than every random key.
        keys[first[0][in_chunk] - start, first[1][in_chunk]] = -1.0
        picks[start:stop] = np.argpartition(keys, wanted - 1, axis=1)[:, :wanted]
    return picks


def _share_evenly(request: Request, picks: Ints) -> Split:
    """The split in which client k holds the classes `picks[k]`, and the holders of a class share it evenly."""
    class_sizes = request.class_sizes()
    shares = np.zeros((request.num_clients, request.num_classes), dtype=np.int64)
    np.put_along_axis(shares, picks, 1, axis=1)
    holders = shares.sum(axis=0)
    scarce = np.flatnonzero(class_sizes < holders)
    if len(scarce):
        label = scarce[0]
        raise Misconfigured(
            f"class {label} has {class_sizes[label]} samples for the {holders[label]} clients that hold it. "
            f"Use fewer clients or fewer classes_per_client."
        )
    return request.by_shares(shares)
