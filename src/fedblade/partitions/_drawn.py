"""A split without a table: a client's samples are drawn from the seed and the client's number when they are needed."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import partitions
from fedblade.core.streams import Stream, Streams
from fedblade.partitions._base import Partitioner, Request
from fedblade.partitions._checks import Ints, as_whole
from fedblade.partitions._split import DEAL, TABLE, Parts


@dataclass(frozen=True, eq=False)
class Pool:
    """Samples to draw from, by class: the samples of class c are `members` from `starts[c]` to `starts[c + 1]`."""

    members: Ints
    starts: Ints

    @staticmethod
    def of(labels: Ints, num_classes: int) -> "Pool":
        """All samples of a set with these labels."""
        sizes = np.bincount(labels, minlength=num_classes)
        return Pool(np.argsort(labels, kind="stable"), np.concatenate(([0], np.cumsum(sizes))))

    def sizes(self) -> Ints:
        """Samples per class [C]."""
        return np.diff(self.starts)

    def hold_out(self, percent: int, seed: int, purpose: int) -> tuple["Pool", "Pool"]:
        """The pool without a random `percent` of each class, rounded down, and the pool of the samples taken out."""
        kept, taken = [], []
        for label, size in enumerate(self.sizes()):
            members = self.members[self.starts[label] : self.starts[label + 1]]
            shuffled = Streams(seed).numpy(Stream.PARTITION, purpose, 0, label).permutation(members)
            cut = size * percent // 100
            taken.append(np.sort(shuffled[:cut]))
            kept.append(np.sort(shuffled[cut:]))
        return Pool._joined(kept), Pool._joined(taken)

    @staticmethod
    def _joined(by_class: list[Ints]) -> "Pool":
        sizes = [len(members) for members in by_class]
        return Pool(np.concatenate(by_class), np.concatenate(([0], np.cumsum(sizes))))


@dataclass(frozen=True, eq=False)
class DrawnSplit(Parts):
    """A split that stores nothing per client; clients may hold the same samples.

    A client's classes are `classes_per_client` of `classes`, drawn from (`seed`, client). Its `samples`, divided evenly
    among these classes, are drawn from `pool` by (`sample_seed`, client), without repeats within the client. A class
    with too few samples gives all of its samples.
    """

    labels: Ints
    num_classes: int
    clients: int
    samples: int
    classes_per_client: int
    seed: int
    sample_seed: int
    classes: Ints
    pool: Pool
    purpose: int = DEAL
    on_demand: ClassVar[bool] = True

    @property
    def num_clients(self) -> int:
        """K."""
        return self.clients

    def part(self, client: int) -> Ints:
        """All samples of a client."""
        labels, amounts = self._class_amounts(client)
        generator = Streams(self.sample_seed).numpy(Stream.PARTITION, self.purpose, client)
        drawn = [
            self.pool.starts[label] + generator.choice(size, amount, replace=False)
            for label, amount, size in zip(labels, amounts, self.pool.sizes()[labels], strict=True)
        ]
        return np.sort(self.pool.members[np.concatenate(drawn)])

    def counts(self, client: int, round_index: int) -> Ints:  # noqa: ARG002 - nothing is ever removed
        """Samples per class [C] of a client."""
        counts = np.zeros(self.num_classes, dtype=np.int64)
        labels, amounts = self._class_amounts(client)
        counts[labels] = amounts
        return counts

    def sizes(self) -> Ints:
        """Samples per client [K]; one number for all clients if every class has enough samples."""
        most_of_a_class = -(-self.samples // self.classes_per_client)
        if self.pool.sizes()[self.classes].min() >= most_of_a_class:
            return np.broadcast_to(np.int64(self.samples), (self.clients,))
        return self._uneven_sizes

    def table(self, most: int | None = None) -> Ints:
        """Samples n_{k,c} per client and class [K, C], of the first `most` clients if given."""
        shown = self.clients if most is None else min(most, self.clients)
        return np.array([self.counts(client, 0) for client in range(shown)])

    def digest(self) -> str:
        """SHA-256 over the recipe and the samples to draw from."""
        recipe = (
            f"drawn clients={self.clients} samples={self.samples} classes_per_client={self.classes_per_client} "
            f"seeds={self.seed},{self.sample_seed} purpose={self.purpose}"
        )
        state = hashlib.sha256(recipe.encode())
        for array in (self.classes, self.pool.starts, self.pool.members):
            state.update(array.astype("<i8", copy=False).tobytes())
        return state.hexdigest()

    def hold_out(self, percent: int, seed: int, purpose: int) -> tuple["DrawnSplit", "DrawnSplit"]:
        """This split without `percent` of each client's samples, and the split of these samples.

        The two pools have no sample in common, so no client trains on a sample that is held out of another client.
        """
        kept, taken = self.pool.hold_out(percent, seed, purpose)
        tested = self.samples * percent // 100
        train = replace(self, pool=kept, samples=self.samples - tested)
        return train, replace(self, pool=taken, samples=tested, sample_seed=seed, purpose=purpose)

    @cached_property
    def _uneven_sizes(self) -> Ints:
        """Samples per client [K] if a class has too few samples; cached, as it draws the classes of all clients."""
        totals = (self._class_amounts(client)[1].sum() for client in range(self.clients))
        sizes = np.fromiter(totals, np.int64, self.clients)
        sizes.flags.writeable = False
        return sizes

    def _class_amounts(self, client: int) -> tuple[Ints, Ints]:
        """A client's classes, and its number of samples of each of them."""
        self.check_client(client)
        wanted = self.classes_per_client
        labels = Streams(self.seed).numpy(Stream.PARTITION, TABLE, client).choice(self.classes, wanted, replace=False)
        even = self.samples // wanted + (np.arange(wanted) < self.samples % wanted)
        return labels, np.minimum(even, self.pool.sizes()[labels])


@partitions.register("drawn")
@dataclass(frozen=True)
class Drawn(Partitioner):
    """Synthetic population of any size: each client draws `samples` samples of `classes_per_client` classes.

    Nothing is stored per client, so a million clients cost no more than a thousand. Classes are drawn uniformly, and a
    client's samples are divided evenly among them and drawn without repeats within the client. Several clients may hold
    the same sample. Samples held out for tests or validation are taken from the data before any client draws.
    """

    samples: int = 50
    classes_per_client: int = 2
    overlapping: ClassVar[bool] = True

    def __post_init__(self) -> None:
        as_whole("samples", self.samples, 1)
        as_whole("classes_per_client", self.classes_per_client, 1)

    def divide(self, request: Request) -> DrawnSplit:
        sizes = request.class_sizes()
        classes = np.flatnonzero(sizes)
        if self.classes_per_client > min(len(classes), self.samples):
            raise Misconfigured(
                f"classes_per_client={self.classes_per_client} is more than the {len(classes)} classes there are, or "
                f"than samples={self.samples}. Lower classes_per_client."
            )
        needed, fewest = -(-self.samples // self.classes_per_client), classes[sizes[classes].argmin()]
        if sizes[fewest] < needed:
            raise Misconfigured(
                f"a client draws {needed} samples of a class, but class {fewest} has {sizes[fewest]}. "
                f"Lower samples={self.samples} or raise classes_per_client={self.classes_per_client}."
            )
        return DrawnSplit(
            labels=request.labels,
            num_classes=request.num_classes,
            clients=request.num_clients,
            samples=self.samples,
            classes_per_client=self.classes_per_client,
            seed=request.seed,
            sample_seed=request.seed,
            classes=classes,
            pool=Pool.of(request.labels, request.num_classes),
        )
