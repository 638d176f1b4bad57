"""Which rank trains which clients of a cohort."""

import heapq
from collections.abc import Mapping, Sequence

from fedblade.core.cohort import Cohort
from fedblade.core.lengths import most_samples

Shares = list[list[int]]
"""The clients of every rank, in ascending id."""


def share_out(costs: Mapping[int, float], ranks: int) -> Shares:
    """Give every client, the costliest first, to the rank with the smallest load.

    Clients of equal cost go by id, ranks of equal load by number. The largest load is at most 4/3 - 1/(3·ranks) times
    the best possible one (Graham, 1969), and at most the mean load plus the cost of one client.
    """
    shares: Shares = [[] for _ in range(ranks)]
    loads = [(0.0, rank) for rank in range(ranks)]
    for client in sorted(costs, key=lambda client: (-costs[client], client)):
        load, least = loads[0]
        shares[least].append(client)
        heapq.heapreplace(loads, (load + costs[client], least))
    return [sorted(share) for share in shares]


def owner(client: int, ranks: int) -> int:
    """The rank that keeps a client's state if ranks do not share one store."""
    return client % ranks


def owned_shares(clients: Sequence[int], ranks: int) -> Shares:
    """The clients whose states a rank keeps, for every rank."""
    return [sorted(client for client in clients if owner(client, ranks) == rank) for rank in range(ranks)]


def estimated_costs(cohort: Cohort) -> dict[int, float]:
    """The cost of each client: the samples of its steps, plus one batch for the work that every client needs."""
    planner = cohort.planner
    phases = planner.phases if cohort.phases is None else cohort.phases
    costs: dict[int, float] = {}
    for client in cohort.clients:
        num_samples = int(planner.shards.counts(client, cohort.round).sum())
        num_used = sum(most_samples(phase, num_samples, planner.batch_size) for phase in phases)
        costs[client] = float(num_used + planner.batch_size)
    return costs
