"""Which rank trains which clients of a cohort."""

import heapq
from collections.abc import Mapping, Sequence

from fedblade.core.cohort import Cohort
from fedblade.core.lengths import most_samples

Shares = list[list[int]]
"""The clients of every rank, in ascending id."""


def share_out(costs: Mapping[int, float], ranks: int) -> Shares:
    """The costliest client first, each to the rank that has least to do; equal costs by id, equal loads by rank.

    The largest load is at most 4/3 - 1/(3·ranks) times the best possible one (Graham, 1969), and at most the mean load
    plus the cost of one client.
    """
    shares: Shares = [[] for _ in range(ranks)]
    loads = [(0.0, rank) for rank in range(ranks)]
    for client in sorted(costs, key=lambda each: (-costs[each], each)):
        load, least = loads[0]
        shares[least].append(client)
        heapq.heapreplace(loads, (load + costs[client], least))
    return [sorted(share) for share in shares]


def owner(client: int, ranks: int) -> int:
    """The rank that keeps a client's state where ranks do not share one store."""
    return client % ranks


def owned_shares(clients: Sequence[int], ranks: int) -> Shares:
    """Every client with the rank that keeps its state."""
    return [sorted(client for client in clients if owner(client, ranks) == rank) for rank in range(ranks)]


def estimated_costs(cohort: Cohort) -> dict[int, float]:
    """Samples that each client will go through, and a batch more for what every client costs; plans no task."""
    planner = cohort.planner
    phases = planner.phases if cohort.phases is None else cohort.phases
    costs: dict[int, float] = {}
    for client in cohort.clients:
        held = int(planner.shards.counts(client, cohort.round).sum())
        seen = sum(most_samples(phase, held, planner.batch_size) for phase in phases)
        costs[client] = float(seen + planner.batch_size)
    return costs
