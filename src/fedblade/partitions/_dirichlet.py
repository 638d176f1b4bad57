"""Dirichlet label skew over all clients or in small groups; tables are drawn until every client has enough samples."""

import warnings
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import partitions
from fedblade.partitions._base import Partitioner, Request
from fedblade.partitions._checks import Ints, as_alpha, as_flag, as_whole
from fedblade.partitions._search import DRAW_LIMIT, Draw, Search
from fedblade.partitions._split import DEAL, TABLE, Split, cuts

# With a fallback, the search for one minimum size ends sooner. One success in 20,000 draws is still found.
FALLBACK_DRAW_LIMIT = 250_000
FALLBACK_SIZES = (10, 5, 2, 1)


@partitions.register("dirichlet")
@dataclass(frozen=True)
class Dirichlet(Partitioner):
    """Dirichlet label skew: a draw of Dir(alpha) for each class divides it among the clients; small alpha, strong skew.

    Class after class, q ~ Dir(alpha·1_K) is the share of the class that each client gets. With `cap` a client that
    already holds n/K samples gets none of the later classes. The whole table is redrawn until every client holds
    `min_size` samples (0: the first draw counts), which favours milder skew; `draws` of the split counts the draws.
    The search ends with an error after a million draws, or sooner if success is unlikely.
    With `min_size_fallback` it accepts 10, 5, 2 or 1 samples, with a warning, if `min_size` is out of reach.
    """

    alpha: float = 0.1
    cap: bool = True
    min_size: int = 10
    min_size_fallback: bool = False
    allow_empty: bool = False
    empty_remedy: ClassVar[str] = "Use fewer clients, another seed, min_size=1 or allow_empty=true."

    def __post_init__(self) -> None:
        as_alpha(self.alpha)
        as_whole("min_size", self.min_size, 0)
        for name in ("cap", "min_size_fallback", "allow_empty"):
            as_flag(name, getattr(self, name))

    def divide(self, request: Request) -> Split:
        draw = self._accepted(request)
        return request.by_shares(draw.shares.T, draws=draw.draws)

    def _accepted(self, request: Request) -> Draw:
        levels = self._levels(request)
        search = self._search(request)
        best = self.min_size
        for level in levels:
            last = level == levels[-1]
            if level > best and not last:
                continue  # every level has the same draws, and the best of them did not reach this level
            draw = search.first(level, DRAW_LIMIT if last else FALLBACK_DRAW_LIMIT)
            if draw.smallest >= level:
                self._warn_if_lowered(level)
                return draw
            if not draw.given_up:
                best = draw.smallest
        remedy = "" if self.min_size_fallback else ", or set min_size_fallback=true"
        hopeless = ", and more draws would hardly help" if draw.given_up else ""
        raise Misconfigured(
            f"none of {draw.draws} draws gave every client {levels[-1]} samples (min_size={self.min_size}, "
            f"alpha={self.alpha}, num_clients={request.num_clients}, {len(request.labels)} samples): the best left "
            f"{draw.smallest} to the smallest client{hopeless}. "
            f"Lower min_size, raise alpha or use fewer clients{remedy}."
        )

    def _search(self, request: Request) -> Search:
        """The draws of this request, which do not depend on the minimum size."""
        generator = partial(request.generator, TABLE)
        return Search(request.class_sizes(), request.num_clients, self.alpha, self.cap, generator)

    def _levels(self, request: Request) -> list[int]:
        """Minimum sizes to try in turn, without those that need more samples than there are."""
        lower = [size for size in FALLBACK_SIZES if size < self.min_size] if self.min_size_fallback else []
        mean = len(request.labels) // request.num_clients
        levels = [size for size in (self.min_size, *lower) if size <= mean]
        if not levels:
            raise Misconfigured(
                f"min_size={self.min_size} for num_clients={request.num_clients} needs "
                f"{self.min_size * request.num_clients} samples, but there are {len(request.labels)}. "
                f"Use min_size={mean} or less, or fewer clients."
            )
        return levels

    def _warn_if_lowered(self, level: int) -> None:
        if level < self.min_size:
            warnings.warn(
                f"min_size={self.min_size} was out of reach at alpha={self.alpha}; clients hold at least {level} "
                f"samples instead (min_size_fallback=true).",
                stacklevel=2,
            )


@partitions.register("dirichlet_groups")
@dataclass(frozen=True)
class DirichletGroups(Partitioner):
    """Dirichlet label skew in groups: `group` clients share a random part of the data by draws of Dir(alpha).

    The samples are shuffled and cut into K/group parts of nearly equal size, one for each group. Inside a group a draw
    of Dir(alpha) for each class divides the class, and a client that holds the group's mean number of samples gets none
    of the later classes. The group is redrawn until each of its clients holds at least half of the mean, rounded down,
    and at least one sample.
    """

    alpha: float = 0.1
    group: int = 10

    def __post_init__(self) -> None:
        as_alpha(self.alpha)
        as_whole("group", self.group, 1)

    def divide(self, request: Request) -> Split:
        if request.num_clients % self.group:
            fitting = [size for size in range(1, self.group) if request.num_clients % size == 0]
            raise Misconfigured(
                f"group={self.group} does not divide num_clients={request.num_clients}. "
                f"Use group={max(fitting)}, or a number of clients that is a multiple of {self.group}."
            )
        groups = request.num_clients // self.group
        shuffled = request.generator(DEAL).permutation(request.labels)
        bounds = np.arange(1, groups) * len(shuffled) // groups
        tables, draws = zip(
            *(self._table(request, number, part) for number, part in enumerate(np.split(shuffled, bounds))), strict=True
        )
        return request.by_shares(np.concatenate(tables), draws=sum(draws))

    def _table(self, request: Request, number: int, labels: Ints) -> tuple[Ints, int]:
        """Samples per client and class [group, C] of group `number`, which shares `labels`; and the number of draws."""
        class_sizes = np.bincount(labels, minlength=request.num_classes)
        generator = partial(request.generator, TABLE, number)
        least = max(1, len(labels) // (2 * self.group))
        draw = Search(class_sizes, self.group, self.alpha, True, generator).first(least, DRAW_LIMIT)
        if draw.smallest < least:
            raise Misconfigured(
                f"none of {draw.draws} draws gave every client of a group {least} samples "
                f"(half of the mean, at least one; alpha={self.alpha}, group={self.group}, "
                f"num_clients={request.num_clients}): the best left {draw.smallest} to the smallest client. "
                f"Raise alpha, or use smaller groups or fewer clients."
            )
        cut = np.array([cuts(row, amount) for row, amount in zip(draw.shares, class_sizes.tolist(), strict=True)])
        return np.diff(cut, axis=1, prepend=0).T, draw.draws
