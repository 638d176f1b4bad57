"""The data of many clients, cut into batches that pass side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from fedblade.core.passes import chunks
from fedblade.core.plan import IntArray
from fedblade.core.samples import Samples


@dataclass(frozen=True)
class Item:
    """A batch of a client: the client's place in the group, and `size` of its samples from `first` on, in its order."""

    place: int
    first: int
    size: int


@dataclass(frozen=True)
class Portion:
    """Batches that pass together, padded to `width`; empty seats hold the first batch again and count for nothing."""

    items: list[Item]
    width: int
    seats: int

    @property
    def seated(self) -> list[Item]:
        """A batch for every seat."""
        return self.items + self.items[:1] * (self.seats - len(self.items))

    @property
    def is_full(self) -> bool:
        """Whether nothing is padded."""
        return min(item.size for item in self.items) == self.width

    def samples(self, starts: Sequence[int]) -> IntArray:
        """Where the samples of every seat are [seats, width] if clients begin at `starts`; padding repeats a first."""
        first, size = (np.array([getattr(item, name) for item in self.seated])[:, None] for name in ("first", "size"))
        begin = np.array([starts[item.place] for item in self.seated])[:, None]
        places = np.arange(self.width)
        at: IntArray = begin + first + np.where(places < size, places, 0)
        return at


@dataclass(frozen=True)
class Data:
    """Samples, and those of each client in its own order; `draws` are for augmented passes."""

    samples: Samples
    indices: Sequence[Tensor]
    draws: Sequence[Tensor | None] | None = None

    @cached_property
    def starts(self) -> list[int]:
        """Where each client's samples begin when all follow one another."""
        return [0, *accumulate(len(each) for each in self.indices)]

    @cached_property
    def order(self) -> Tensor:
        """The samples of all clients, one client after another."""
        return torch.cat(list(self.indices))

    @cached_property
    def drawn(self) -> Tensor | None:
        """The draws of all clients, if there are any."""
        found = [each for each in self.draws or () if each is not None]
        return torch.cat(found) if found else None


def items_of(indices: Sequence[Tensor]) -> list[Item]:
    """The batches of all clients, the longest first."""
    items: list[Item] = []
    for place, mine in enumerate(indices):
        sizes = [len(chunk) for chunk in chunks(mine)]
        items += [Item(place, first, size) for first, size in zip(accumulate([0, *sizes]), sizes, strict=False) if size]
    return sorted(items, key=lambda item: -item.size)


def portions_of(items: Sequence[Item], seats: int, least: int, *, fixed: bool) -> Iterator[Portion]:
    """Batches that pass together: all portions of one shape if that is `fixed`, else batches of about one length.

    Fixed shapes are rounded up, so that there are few of them over a run.
    """
    start, longest = 0, _rounded(items[0].size, 32)
    taken = min(seats, _rounded(len(items), 4))
    while start < len(items):
        width = longest if fixed else items[start].size
        some = [item for item in items[start : start + seats] if fixed or 2 * item.size > width]
        start += len(some)
        # Clients that all pass once, in their order, need no copies of their models.
        some.sort(key=lambda item: item.place)
        yield Portion(some, max(least, width), taken if fixed else len(some))


def _rounded(number: int, step: int) -> int:
    """The next multiple of a step."""
    return -(-number // step) * step
