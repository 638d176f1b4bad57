"""Splits in one call: each function takes labels and gives a list with one array of sample indices per client."""

from fedblade.partitions._checks import Column, Ints
from fedblade.partitions._dirichlet import Dirichlet, DirichletGroups
from fedblade.partitions._dirichlet_clients import Deal, DirichletClients, Sizes
from fedblade.partitions._iid import IID
from fedblade.partitions._pathological import Labels, Pathological
from fedblade.partitions._shards import Shards


def iid(labels: Column, num_clients: int, seed: int = 0) -> list[Ints]:
    """Random parts of nearly equal size."""
    return list(IID().split(labels, num_clients, seed).parts())


def dirichlet(
    labels: Column, num_clients: int, alpha: float, seed: int = 0, cap: bool = True, min_size: int = 10
) -> list[Ints]:
    """Dirichlet label skew of concentration `alpha`; see `Dirichlet` for `cap` and `min_size`."""
    return list(Dirichlet(alpha, cap, min_size).split(labels, num_clients, seed).parts())


def dirichlet_clients(
    labels: Column,
    num_clients: int,
    alpha: float,
    *,
    sizes: Sizes = "equal",
    sigma: float = 0.3,
    deal: Deal = "clients",
    seed: int = 0,
) -> list[Ints]:
    """A class mix from Dir(alpha) for each client of a given size; see `DirichletClients` for the other knobs."""
    return list(DirichletClients(alpha, sizes, sigma, deal).split(labels, num_clients, seed).parts())


def dirichlet_groups(labels: Column, num_clients: int, alpha: float, group: int = 10, seed: int = 0) -> list[Ints]:
    """Dirichlet label skew inside groups of `group` clients; every group has a random part of the data."""
    return list(DirichletGroups(alpha, group).split(labels, num_clients, seed).parts())


def labels(labels: Column, num_clients: int, classes_per_client: int, seed: int = 0) -> list[Ints]:
    """Client i holds class i mod C and random other classes, `classes_per_client` in total."""
    return list(Labels(classes_per_client).split(labels, num_clients, seed).parts())


def pathological(labels: Column, num_clients: int, classes_per_client: int, seed: int = 0) -> list[Ints]:
    """Exactly `classes_per_client` classes on each client."""
    return list(Pathological(classes_per_client).split(labels, num_clients, seed).parts())


def shards(labels: Column, num_clients: int, shards_per_client: int, seed: int = 0) -> list[Ints]:
    """`shards_per_client` equal shards of single classes on each client."""
    return list(Shards(shards_per_client).split(labels, num_clients, seed).parts())
