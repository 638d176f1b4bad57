"""What every split of a training set over clients answers, and the split that holds who has what in two flat arrays."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedblade.core.streams import Stream, Streams
from fedblade.partitions._checks import Floats, Ints

# First sub-key of the stream: one per purpose, so that no draw shifts another.
TABLE, DEAL, TEST, REMOVAL, VALIDATION = range(5)
NOBODY = -1
MOST_DRAWN = 1_000
"""Clients that are tabulated of a split which draws them when asked; a population may have millions."""

Shares: TypeAlias = Ints | Floats


@dataclass(frozen=True)
class Removal:
    """Each client trains without one of its classes, drawn anew every `every` rounds; none is lost for good."""

    every: int
    seed: int

    def draw(self, classes: Ints, client: int, round_index: int) -> int | None:
        """The class of `classes` that `client` lacks in a round; None where that would leave no samples."""
        if len(classes) < 2:
            return None
        block = round_index // self.every
        return int(Streams(self.seed).numpy(Stream.PARTITION, REMOVAL, block, client).choice(classes))


class Parts(ABC):
    """Which training samples each client holds; rounds count from 0. Samples of a client ascend.

    `labels` [n] are those of the whole training set. `shares` [K, C] say in which proportion a class is dealt to the
    clients (relative within a class; None where classes play no part), `groups` [K] which group each client is (None
    where groups play no part), `draws` how many tables were drawn until one was accepted.
    """

    labels: Ints
    num_classes: int
    shares: Shares | None = None
    groups: NDArray[Any] | None = None
    draws: int = 1
    removal: Removal | None = None
    on_demand: ClassVar[bool] = False
    """Whether clients draw their samples when asked, several perhaps the same, and nobody should ask for all."""

    @property
    @abstractmethod
    def num_clients(self) -> int:
        """K."""

    @abstractmethod
    def part(self, client: int) -> Ints:
        """All samples of a client, whatever the round."""

    @abstractmethod
    def sizes(self) -> Ints:
        """Samples per client [K], nothing removed."""

    @abstractmethod
    def table(self, most: int | None = None) -> Ints:
        """Samples n_{k,c} per client and class [K, C], nothing removed; of the first `most` clients if given."""

    def short_table(self) -> Ints:
        """The table of all clients; of the first 1000 where clients draw their samples when asked."""
        return self.table(MOST_DRAWN if self.on_demand else None)

    @abstractmethod
    def digest(self) -> str:
        """SHA-256 over who holds what, the same on every machine."""

    def parts(self) -> Iterator[Ints]:
        """The parts of all clients in order."""
        return (self.part(client) for client in range(self.num_clients))

    def removed(self, client: int, round_index: int) -> int | None:
        """The class a client does without in a round, if any."""
        if self.removal is None:
            return None
        return self.removal.draw(np.unique(self.labels[self.part(client)]), client, round_index)

    def indices(self, client: int, round_index: int) -> Ints:
        """Samples a client trains on in a round: its part less the class removed."""
        part, removed = self.part(client), self.removed(client, round_index)
        return part if removed is None else part[self.labels[part] != removed]

    def counts(self, client: int, round_index: int) -> Ints:
        """Samples per class [C] that a client trains on in a round."""
        return np.bincount(self.labels[self.indices(client, round_index)], minlength=self.num_classes)

    def check_client(self, client: int) -> None:
        """Refuse a client that there is not."""
        if not 0 <= client < self.num_clients:
            raise IndexError(f"client {client} of {self.num_clients}")


@dataclass(frozen=True, eq=False)
class Split(Parts):
    """Which training samples each client holds, each sample at most one client's.

    `order` [n_used] lists the samples of client 0, then of client 1, …, ascending within a client; client k's run
    from `offsets[k]` to `offsets[k + 1]`. Arrays handed out are views: read them, do not write.
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
        """All samples of a client, whatever the round."""
        self.check_client(client)
        return self.order[self.offsets[client] : self.offsets[client + 1]]

    def sizes(self) -> Ints:
        """Samples per client [K], nothing removed."""
        return np.diff(self.offsets)

    def table(self, most: int | None = None) -> Ints:
        """Samples n_{k,c} per client and class [K, C], nothing removed; of the first `most` clients if given."""
        cells = self.owners() * self.num_classes + self.labels[self.order]
        flat = np.bincount(cells, minlength=self.num_clients * self.num_classes)
        return flat.reshape(self.num_clients, self.num_classes)[:most]

    def owners(self) -> Ints:
        """The client [n_used] behind each entry of `order`."""
        return np.repeat(np.arange(self.num_clients), self.sizes())

    def unused(self) -> Ints:
        """Training samples no client holds, ascending; the validation tail of a truncated split."""
        free = np.ones(len(self.labels), dtype=bool)
        free[self.order] = False
        return np.flatnonzero(free)

    def digest(self) -> str:
        """SHA-256 over who holds what (and over the removal rule), the same on every machine."""
        rule = "" if self.removal is None else f"{self.removal.every} {self.removal.seed}"
        state = hashlib.sha256(f"clients={self.num_clients} removal={rule}".encode())
        for array in (self.offsets, self.order):
            state.update(array.astype("<i8", copy=False).tobytes())
        return state.hexdigest()


def log_gamma(generator: np.random.Generator, alpha: float, shape: tuple[int, ...]) -> Floats:
    """Logarithms of Gamma(alpha) variables; normalised over an axis, the variables are Dir(alpha).

    Gamma(a) is Gamma(a + 1)·U^(1/a), taken in logarithms because the product underflows for small a.
    """
    weights = np.log(generator.standard_gamma(alpha + 1, shape))
    weights -= generator.standard_exponential(shape) / alpha
    return weights


def cuts(shares: Shares, amount: int) -> Ints:
    """Where `amount` shuffled samples are cut: floor(cumulative share × amount / all shares), shares [..., K].

    Whole-number shares are cut in integer arithmetic. For fractions the running sum is divided by its own last value,
    hence exactly 1 from the last client with a positive share on: rounding can neither lose a sample nor hand one to a
    client whose share is 0. Where all shares are 0 nobody gets anything.
    """
    running = np.cumsum(shares, axis=-1)
    total = running[..., -1:]
    whole = np.where(total > 0, total, 1)
    if np.issubdtype(running.dtype, np.integer):
        return np.asarray(running * amount // whole, dtype=np.int64)
    return (running / whole * amount).astype(np.int64)


def deal(shares: Shares, labels: Ints, seed: int, purpose: int) -> Ints:
    """Hand every class out by `shares` [K, C] after shuffling it; the owner [n] of each sample, or `NOBODY`."""
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
    mine = owners[used]
    offsets = np.zeros(num_clients + 1, dtype=np.int64)
    np.cumsum(np.bincount(mine, minlength=num_clients), out=offsets[1:])
    return used[np.argsort(mine, kind="stable")], offsets
