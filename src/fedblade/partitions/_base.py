"""The base class of all partitioners, and the checked request that a partitioner gets."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedblade.core.errors import Misconfigured
from fedblade.core.streams import Stream, Streams
from fedblade.partitions._checks import Column, Ints, as_groups, as_labels, as_whole
from fedblade.partitions._split import DEAL, Parts, Shares, Split, deal, gather


@dataclass(frozen=True, eq=False)
class Request:
    """A checked request: `labels` [n] over `num_classes`, split over `num_clients`, with `groups` [n] if known."""

    labels: Ints
    num_classes: int
    num_clients: int
    seed: int
    groups: NDArray[Any] | None

    def class_sizes(self) -> Ints:
        """Samples per class [C]."""
        return np.bincount(self.labels, minlength=self.num_classes)

    def generator(self, *key: int) -> np.random.Generator:
        """The random numbers of the split for `key`."""
        return Streams(self.seed).numpy(Stream.PARTITION, *key)

    def by_owner(
        self, owners: Ints, *, shares: Shares | None = None, groups: NDArray[Any] | None = None, draws: int = 1
    ) -> Split:
        """The split in which sample i belongs to client `owners[i]`, or to no client if that is -1."""
        order, offsets = gather(owners, self.num_clients)
        return Split(order, offsets, self.labels, self.num_classes, shares, groups, draws)

    def by_shares(self, shares: Shares, *, draws: int = 1) -> Split:
        """The split that divides every class among the clients by `shares` [K, C]."""
        owners = deal(shares, self.labels, self.seed, DEAL)
        return self.by_owner(owners, shares=shares, draws=draws)


class Partitioner(ABC):
    """A way to divide a training set among clients; the fields of a subclass are the user's knobs."""

    allow_empty: bool = False
    overlapping: ClassVar[bool] = False
    """Whether several clients may hold the same sample."""
    empty_remedy: ClassVar[str] = "Use fewer clients or another seed."
    """The advice of the error that a client got no samples."""

    def split(
        self,
        labels: Column,
        num_clients: int,
        seed: int,
        *,
        num_classes: int | None = None,
        groups: Column | None = None,
    ) -> Parts:
        """Divide the samples with these labels among `num_clients`.

        `groups` name the domain, writer or centre of each sample; only partitioners that split by group read them.
        Raises `Misconfigured` if a client gets no samples, unless the partitioner allows empty clients.
        """
        checked, classes = as_labels("labels", labels, num_classes)
        request = Request(
            checked,
            classes,
            as_whole("num_clients", num_clients, 1),
            as_whole("seed", seed, 0),
            None if groups is None else as_groups("groups", groups, len(checked)),
        )
        self._refuse_impossible(request)
        split = self.divide(request)
        self._refuse_empty(split)
        return split

    @abstractmethod
    def divide(self, request: Request) -> Parts:
        """The split itself. A new partitioner has to write only this method."""

    def _refuse_impossible(self, request: Request) -> None:
        if np.count_nonzero(request.class_sizes()) < 2:
            raise Misconfigured(
                f"labels hold only one class ({request.labels[0]}), expected two or more. Check how they were loaded."
            )
        if request.num_clients > len(request.labels) and not (self.allow_empty or self.overlapping):
            raise Misconfigured(
                f"num_clients={request.num_clients} is more than the {len(request.labels)} samples there are. "
                f"Use fewer clients or more data."
            )

    def _refuse_empty(self, split: Parts) -> None:
        empty = np.flatnonzero(split.sizes() == 0)
        if len(empty) and not self.allow_empty:
            raise Misconfigured(
                f"{len(empty)} of {split.num_clients} clients got no samples (first: client {empty[0]}). "
                f"{self.empty_remedy}"
            )
