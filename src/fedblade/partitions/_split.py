"""`Parts`, the interface of every split of a training set, and `Split`, which stores it in two flat arrays."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedblade.core.streams import Stream, Streams
from fedblade.hardness import Hardness, measure
from fedblade.partitions._checks import Floats, Ints

# First sub-key of the stream: one per purpose, so that no draw shifts another.
TABLE, DEAL, TEST, REMOVAL = range(4)
VALIDATION = 4
"""The purpose of samples that `hold_out` takes out for validation."""
NOBODY = -1
MOST_DRAWN = 1_000
"""Of a `DrawnSplit`, tables show at most so many clients; a population may have millions."""

Shares: TypeAlias = Ints | Floats


@dataclass(frozen=True)
class Removal:
    """Each client trains without one of its classes, drawn again every `every` rounds; the class comes back then."""

    every: int
    seed: int

    def draw(self, classes: Ints, client: int, round_index: int) -> int | None:
        """The class of `classes` that `client` lacks in a round; None for a client with only one class."""
        if len(classes) < 2:
            return None
        block = round_index // self.every
        return int(Streams(self.seed).numpy(Stream.PARTITION, REMOVAL, block, client).choice(classes))


class Parts(ABC):
    """Which training samples each client holds, in ascending order. Rounds count from 0.

    `labels` [n] are the labels of the whole training set. `shares` [K, C] are the proportions in which a class is
    divided among the clients (relative within a class; None if the split ignores classes). `groups` [K] are the groups
    of the clients (None if the split ignores groups). `draws` counts the tables drawn until one was accepted.
    """

    labels: Ints
    num_classes: int
    shares: Shares | None = None
    groups: NDArray[Any] | None = None
    draws: int = 1
    removal: Removal | None = None
    on_demand: ClassVar[bool] = False
    """Whether a client's samples are drawn when they are asked for. Clients may then share samples and be millions."""

    @property
    @abstractmethod
    def num_clients(self) -> int:
        """K."""

    @abstractmethod
    def part(self, client: int) -> Ints:
        """All samples of a client, also those of a class that is removed in a round."""

    @abstractmethod
    def sizes(self) -> Ints:
        """Samples per client [K], before classes are removed."""

    def may_train(self) -> Ints:
        """The clients that may train: all but those that are known to hold no samples."""
        return np.flatnonzero(self.sizes() > 0)

    @abstractmethod
    def table(self, most: int | None = None) -> Ints:
        """Samples n_{k,c} per client and class [K, C], before classes are removed; at most the first `most` clients."""

    def short_table(self) -> Ints:
        """The table of all clients; of the first 1000 clients of a split that draws samples on demand."""
        return self.table(MOST_DRAWN if self.on_demand else None)

    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of the split, the same on every machine."""

    def parts(self) -> Iterator[Ints]:
        """The parts of all clients in order."""
        return (self.part(client) for client in range(self.num_clients))

    def removed(self, client: int, round_index: int) -> int | None:
        """The class that is removed from a client in a round, if any."""
        if self.removal is None:
            return None
        return self.removal.draw(np.unique(self.labels[self.part(client)]), client, round_index)

    def indices(self, client: int, round_index: int) -> Ints:
        """Samples that a client trains on in a round: its part without the removed class."""
        part, removed = self.part(client), self.removed(client, round_index)
        return part if removed is None else part[self.labels[part] != removed]

    def counts(self, client: int, round_index: int) -> Ints:
        """Samples per class [C] that a client trains on in a round."""
        return np.bincount(self.labels[self.indices(client, round_index)], minlength=self.num_classes)

    def check_client(self, client: int) -> None:
        """Refuse a client number that does not exist."""
        if not 0 <= client < self.num_clients:
            raise IndexError(f"client {client} of {self.num_clients}")


@dataclass(frozen=True, eq=False)
class Split(Parts):
    """Which training samples each client holds; a sample belongs to at most one client.

    `order` [n_used] lists the samples of client 0, then of client 1, …, ascending within a client. Those of client k
    are at `offsets[k]` to `offsets[k + 1]`. The methods give views of the arrays: read them, do not write.
    """

    order: Ints
    offsets: Ints
    labels: Ints
    num_classes: int
    shares: Shares | None = None
    groups: NDArray[Any] | None = None
    draws: int = 1
    removal: Removal | None = None

    @property
    def num_clients(self) -> int:
        """K."""
        return len(self.offsets) - 1

    def part(self, client: int) -> Ints:
        """All samples of a client."""
        self.check_client(client)
        return self.order[self.offsets[client] : self.offsets[client + 1]]

    def sizes(self) -> Ints:
        """Samples per client [K]."""
        return np.diff(self.offsets)

    def table(self, most: int | None = None) -> Ints:
        """Samples n_{k,c} per client and class [K, C] of the first `most` clients."""
        cells = self.owners() * self.num_classes + self.labels[self.order]
        flat = np.bincount(cells, minlength=self.num_clients * self.num_classes)
        return flat.reshape(self.num_clients, self.num_classes)[:most]

    def owners(self) -> Ints:
        """The client [n_used] of each entry of `order`."""
        return np.repeat(np.arange(self.num_clients), self.sizes())

    def unused(self) -> Ints:
        """Training samples that no client holds, ascending."""
        free = np.ones(len(self.labels), dtype=bool)
        free[self.order] = False
        return np.flatnonzero(free)

    def digest(self) -> str:
        """SHA-256 of the samples of every client and of the removal rule, the same on every machine."""
        rule = "" if self.removal is None else f"{self.removal.every} {self.removal.seed}"
        state = hashlib.sha256(f"clients={self.num_clients} removal={rule}".encode())
        for array in (self.offsets, self.order):
            state.update(array.astype("<i8", copy=False).tobytes())
        return state.hexdigest()


def hardness(split: Parts, cohort: int) -> Hardness:
    """Measure a split for cohorts of `cohort` clients, before classes are removed.

    Of a `DrawnSplit` the first 1000 clients are measured, and `Hardness` says so.
    """
    return measure(split.short_table(), cohort, split.num_clients)


def log_gamma(generator: np.random.Generator, alpha: float, shape: tuple[int, ...]) -> Floats:
    """Logarithms of Gamma(alpha) variables; normalised over an axis, the variables are Dir(alpha).

    Gamma(a) is Gamma(a + 1)·U^(1/a), taken in logarithms because the product underflows for small a.
    """
    weights = np.log(generator.standard_gamma(alpha + 1, shape))
    weights -= generator.standard_exponential(shape) / alpha
    return weights


def cuts(shares: Shares, amount: int) -> Ints:
    """Positions at which `amount` shuffled samples are cut: floor(cumulative share × amount / all shares).

    `shares` is [..., K]. Whole-number shares are cut in integer arithmetic. For fractions the running sum is divided by
    its last value, which gives exactly 1 from the last client with a positive share on: rounding can neither lose a
    sample nor give one to a client with share 0. If all shares are 0, no client gets samples.
    """
    running = np.cumsum(shares, axis=-1)
    total = running[..., -1:]
    whole = np.where(total > 0, total, 1)
    if np.issubdtype(running.dtype, np.integer):
        return np.asarray(running * amount // whole, dtype=np.int64)
    return (running / whole * amount).astype(np.int64)


def deal(shares: Shares, labels: Ints, seed: int, purpose: int) -> Ints:
    """Shuffle every class and divide it by `shares` [K, C]; the result is the owner [n] of each sample, or `NOBODY`."""
    num_clients, num_classes = shares.shape
    owners = np.full(len(labels), NOBODY, dtype=np.int64)
    by_class = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels, minlength=num_classes))
    for label, members in enumerate(np.split(by_class, ends[:-1])):
        if len(members) == 0:
            continue
        cut = cuts(shares[:, label], len(members))
        shuffled = Streams(seed).numpy(Stream.PARTITION, purpose, label).permutation(members)
        owners[shuffled[: cut[-1]]] = np.repeat(np.arange(num_clients), np.diff(cut, prepend=0))
    return owners


def gather(owners: Ints, num_clients: int) -> tuple[Ints, Ints]:
    """`order` and `offsets` of the samples that have an owner."""
    used = np.flatnonzero(owners != NOBODY)
    owners = owners[used]
    offsets = np.zeros(num_clients + 1, dtype=np.int64)
    np.cumsum(np.bincount(owners, minlength=num_clients), out=offsets[1:])
    return used[np.argsort(owners, kind="stable")], offsets
