"""Splits by the groups of a data set: domains, writers, roles, centres, and clients that the data come with."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import partitions
from fedblade.partitions._base import Partitioner, Request
from fedblade.partitions._checks import Ints, as_number
from fedblade.partitions._split import DEAL, NOBODY, TABLE, Split


@partitions.register("domain")
@dataclass(frozen=True)
class Domain(Partitioner):
    """One client per domain, all of the same size: a random part as large as `fraction` of the smallest domain.

    The other samples belong to no client (`Split.unused`) and may be used for validation.
    """

    fraction: float = 0.5

    def __post_init__(self) -> None:
        as_number("fraction", self.fraction, 0, 1, "a number above 0 and up to 1, e.g. fraction=0.5")

    def divide(self, request: Request) -> Split:
        names, group_of, group_sizes = _group(request, "domain")
        _refuse_other_number(request, len(names), "domains")
        smallest = int(group_sizes.min())
        # The small addition undoes binary rounding: 0.29 · 100 is a little below 29.
        size = int(self.fraction * smallest + 1e-9)
        if size == 0:
            raise Misconfigured(
                f"fraction={self.fraction} of the smallest domain ({smallest} samples) is less than one sample. "
                f"Use a fraction of at least 1/{smallest}."
            )
        owners = np.full(len(group_of), NOBODY, dtype=np.int64)
        for client in range(len(names)):
            members = np.flatnonzero(group_of == client)
            owners[request.generator(DEAL, client).permutation(members)[:size]] = client
        return request.by_owner(owners, groups=names)


@partitions.register("natural")
@dataclass(frozen=True)
class Natural(Partitioner):
    """Each client is one group of the data (writer, role, centre); fewer clients than groups are a random choice."""

    def divide(self, request: Request) -> Split:
        names, group_of, _ = _group(request, "natural")
        if request.num_clients > len(names):
            raise Misconfigured(
                f"num_clients={request.num_clients} is more than the {len(names)} groups of the data. "
                f"Use num_clients={len(names)} or less."
            )
        chosen = np.sort(request.generator(TABLE).permutation(len(names))[: request.num_clients])
        client_of = np.full(len(names), NOBODY, dtype=np.int64)
        client_of[chosen] = np.arange(request.num_clients)
        return request.by_owner(client_of[group_of], groups=names[chosen])


@partitions.register("given")
@dataclass(frozen=True)
class Given(Partitioner):
    """The clients that the data come with, all of them, in their order: `clients={…}`, or a file for each client."""

    def divide(self, request: Request) -> Split:
        names, group_of, _ = _group(request, "given")
        _refuse_other_number(request, len(names), "clients")
        return request.by_owner(group_of, groups=names)


def _refuse_other_number(request: Request, number: int, what: str) -> None:
    if request.num_clients != number:
        raise Misconfigured(
            f"num_clients={request.num_clients} does not match the {number} {what} of the data. "
            f"Use num_clients={number}."
        )


def _group(request: Request, partition: str) -> tuple[NDArray[Any], Ints, Ints]:
    """Group names in ascending order, the group number [n] of each sample, and the group sizes."""
    if request.groups is None:
        raise Misconfigured(
            f"partition '{partition}' needs the group of each sample, but the data set has no groups. "
            f"Pass groups=… or use 'dirichlet', 'shards' or 'iid'."
        )
    names, group_of, sizes = np.unique(request.groups, return_inverse=True, return_counts=True)
    return names, group_of, sizes
