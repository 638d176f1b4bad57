"""A federation without a table: what a client holds is drawn from the seed and its number when somebody asks."""

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
    """Samples to draw from by class: those of class c are `members` from `starts[c]` to `starts[c + 1]`."""

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
        """The pool without a random `percent` of each class, rounded down, and what was taken out."""
        kept, held = [], []
        for label, size in enumerate(self.sizes()):
            own = self.members[self.starts[label] : self.starts[label + 1]]
            shuffled = Streams(seed).numpy(Stream.PARTITION, purpose, 0, label).permutation(own)
            cut = size * percent // 100
            held.append(np.sort(shuffled[:cut]))
            kept.append(np.sort(shuffled[cut:]))
        left, taken = (
            Pool(np.concatenate(part), np.concatenate(([0], np.cumsum([len(each) for each in part]))))
            for part in (kept, held)
        )
        return left, taken


@dataclass(frozen=True, eq=False)
class DrawnSplit(Parts):
    """A split of which nothing is stored per client; clients may hold the same samples.

    A client's classes are `classes_per_client` of `classes`, drawn from (`seed`, client). Its `samples`, spread evenly
    over them, are drawn from `pool` by (`sample_seed`, client), without repeats within the client. A class that is
    short of samples gives all it has.
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
        held = self._held(client)
        generator = Streams(self.sample_seed).numpy(Stream.PARTITION, self.purpose, client)
        drawn = [
            self.pool.starts[label] + generator.choice(size, amount, replace=False)
            for label, amount, size in zip(*held, self.pool.sizes()[held[0]], strict=True)
        ]
        return np.sort(self.pool.members[np.concatenate(drawn)])

    def counts(self, client: int, round_index: int) -> Ints:  # noqa: ARG002 - nothing is ever removed
        """Samples per class [C] of a client."""
        row = np.zeros(self.num_classes, dtype=np.int64)
        labels, amounts = self._held(client)
        row[labels] = amounts
        return row

    def sizes(self) -> Ints:
        """Samples per client [K]; one number for all where no class is short of samples."""
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
        """This split less `percent` of each client's samples, and the split of those, from pools that share nothing.

        What is held out of one client is therefore not trained on by another.
        """
        kept, held = self.pool.hold_out(percent, seed, purpose)
        tested = self.samples * percent // 100
        train = replace(self, pool=kept, samples=self.samples - tested)
        return train, replace(self, pool=held, samples=tested, sample_seed=seed, purpose=purpose)

    @cached_property
    def _uneven_sizes(self) -> Ints:
        """Samples per client [K] where classes are short; kept, because the classes of all clients are drawn for it."""
        sizes = np.fromiter((self._held(client)[1].sum() for client in range(self.clients)), np.int64, self.clients)
        sizes.flags.writeable = False
        return sizes

    def _held(self, client: int) -> tuple[Ints, Ints]:
        """A client's classes and how many samples it has of each."""
        self.check_client(client)
        wanted = self.classes_per_client
        labels = Streams(self.seed).numpy(Stream.PARTITION, TABLE, client).choice(self.classes, wanted, replace=False)
        even = self.samples // wanted + (np.arange(wanted) < self.samples % wanted)
        return labels, np.minimum(even, self.pool.sizes()[labels])


@partitions.register("drawn")
@dataclass(frozen=True)
class Drawn(Partitioner):
    """Synthetic population of any size: each client draws `samples` of `classes_per_client` classes for itself.

    Nothing is stored per client, so that a million cost no more than a thousand. Classes are drawn uniformly, samples
    spread evenly over them and drawn without repeats within a client; clients draw apart and may hold the same samples.
    Samples held out for tests or validation are put aside for all clients before anyone draws.
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
                f"than samples={self.samples}. Lower it."
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
