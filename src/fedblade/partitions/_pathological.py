"""Clients that each know a fixed number of classes and nothing of the others."""

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

    Clients take classes in turn until every class has a holder; all further picks are uniformly random, without
    repeats within a client. Classes without training samples are not dealt.
    """

    classes_per_client: int = 2

    def __post_init__(self) -> None:
        as_whole("classes_per_client", self.classes_per_client, 1)

    def divide(self, request: Request) -> Split:
        present = np.flatnonzero(request.class_sizes())
        self._refuse_mismatch(request.num_clients, len(present))
        # A class that nobody has yet goes to the client whose turn it is.
        due = np.arange(len(present))
        first = (due // self.classes_per_client, due)
        shape = (request.num_clients, len(present))
        return share_evenly(
            request, present[pick_classes(request.generator(TABLE), shape, self.classes_per_client, first)]
        )

    def _refuse_mismatch(self, num_clients: int, num_present: int) -> None:
        wanted = self.classes_per_client
        refuse_too_many(wanted, num_present)
        if num_clients * wanted < num_present:
            raise Misconfigured(
                f"num_clients={num_clients} with classes_per_client={wanted} leaves some of {num_present} classes to "
                f"nobody. Make their product at least {num_present}."
            )


def refuse_too_many(classes_per_client: int, num_present: int) -> None:
    """Refuse more classes per client than there are."""
    if classes_per_client > num_present:
        raise Misconfigured(
            f"classes_per_client={classes_per_client} is more than the {num_present} classes there are. "
            f"Use classes_per_client={num_present} or less."
        )


def pick_classes(generator: np.random.Generator, shape: tuple[int, int], wanted: int, first: tuple[Ints, Ints]) -> Ints:
    """Positions [K, wanted] of each client's classes, `shape` being (clients, classes), drawn without repeats.

    `first` names clients and the classes that they hold in any case.
    """
    clients, classes = shape
    rows = max(1, _CHUNK_CELLS // classes)
    picks = np.empty((clients, wanted), dtype=np.int64)
    for start in range(0, clients, rows):
        stop = min(start + rows, clients)
        keys = generator.random((stop - start, classes))
        mine = (first[0] >= start) & (first[0] < stop)
        # What a client holds in any case sorts before every random key.
        keys[first[0][mine] - start, first[1][mine]] = -1.0
        picks[start:stop] = np.argpartition(keys, wanted - 1, axis=1)[:, :wanted]
    return picks


def share_evenly(request: Request, picks: Ints) -> Split:
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
