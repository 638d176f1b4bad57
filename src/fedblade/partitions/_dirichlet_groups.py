"""Dirichlet label skew inside small groups of clients; every group has a random part of the data."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import partitions
from fedblade.partitions._base import Partitioner, Request
from fedblade.partitions._checks import Ints, as_alpha, as_whole
from fedblade.partitions._search import DRAW_LIMIT, Search
from fedblade.partitions._split import DEAL, TABLE, Split, cuts


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
