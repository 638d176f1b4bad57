"""Shares of a cohort: everyone once, the same every time, and about equal."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedblade.core.cohort import Cohort
from fedblade.core.lengths import PhasePlan
from fedblade.engines.ranks._shares import estimated_costs, owned_shares, owner, share_out
from support.small_federation import build

COSTS = st.dictionaries(st.integers(0, 10**7), st.floats(0, 1e6), max_size=40)
RANKS = st.integers(1, 9)


def loads_of(shares, costs):
    return [sum(costs[client] for client in share) for share in shares]


@given(costs=COSTS, ranks=RANKS)
def test_every_client_is_with_one_rank_in_ascending_id(costs, ranks):
    shares = share_out(costs, ranks)
    assert len(shares) == ranks
    assert sorted(client for share in shares for client in share) == sorted(costs)
    assert all(share == sorted(share) for share in shares)


@given(costs=COSTS, ranks=RANKS, seed=st.integers(0, 99))
def test_the_order_in_which_clients_are_named_changes_nothing(costs, ranks, seed):
    names = np.random.default_rng(seed).permutation(list(costs))
    assert share_out({int(name): costs[int(name)] for name in names}, ranks) == share_out(costs, ranks)


@given(costs=COSTS.filter(bool), ranks=RANKS)
def test_no_load_is_more_than_the_mean_and_a_client(costs, ranks):
    most = sum(costs.values()) / ranks + max(costs.values())
    assert max(loads_of(share_out(costs, ranks), costs)) <= most * (1 + 1e-9)


@given(costs=st.dictionaries(st.integers(0, 99), st.integers(1, 50), min_size=1, max_size=7), ranks=st.integers(1, 3))
def test_loads_are_within_grahams_bound_of_the_best(costs, ranks):
    clients = list(costs)
    ways = product(range(ranks), repeat=len(clients))
    best = min(
        max(sum(costs[c] for c, r in zip(clients, way, strict=True) if r == rank) for rank in range(ranks))
        for way in ways
    )
    assert max(loads_of(share_out(costs, ranks), costs)) <= (4 / 3 - 1 / (3 * ranks)) * best + 1e-9


def test_the_costliest_clients_are_apart():
    assert share_out({1: 9.0, 2: 1.0, 3: 8.0, 4: 2.0}, 2) == [[1, 2], [3, 4]]


def test_ranks_beyond_the_clients_have_none():
    assert share_out({5: 1.0, 3: 1.0}, 4) == [[3], [5], [], []]


@given(clients=st.lists(st.integers(0, 10**7), unique=True, max_size=30), ranks=RANKS)
def test_a_clients_state_has_one_owner_whatever_the_cohort(clients, ranks):
    shares = owned_shares(clients, ranks)
    assert sorted(client for share in shares for client in share) == sorted(clients)
    assert all(owner(client, ranks) == rank for rank, share in enumerate(shares) for client in share)


@pytest.mark.parametrize(("steps", "seen"), [(None, 2), (1, None)])
def test_costs_are_the_samples_that_phases_go_through_and_a_batch(steps, seen):
    planner = build().planner
    phases = (PhasePlan(2, steps), PhasePlan(1))
    cohort = Cohort(planner, 0, (0, 1, 2, 3), phases)
    costs = estimated_costs(cohort)
    for client in cohort.clients:
        held = len(planner.shards.indices(client, 0))
        first = seen * held if seen else min(2 * held, planner.batch_size)
        assert costs[client] == first + held + planner.batch_size


def test_steps_in_place_of_epochs_cost_the_same_for_everyone_who_fills_a_batch():
    planner = build().planner
    costs = estimated_costs(Cohort(planner, 0, (0, 1, 2, 3), (PhasePlan(None, 5),)))
    for client, cost in costs.items():
        held = len(planner.shards.indices(client, 0))
        assert cost == 5 * min(held, planner.batch_size) + planner.batch_size


def test_costs_follow_the_work_that_is_planned():
    """Samples in the batches of a task, without the constant."""
    planner = build(epochs=3).planner
    cohort = Cohort(planner, 0, (0, 1, 2, 3))
    costs = estimated_costs(cohort)
    for task in cohort:
        planned = sum(len(batch.indices) for phase in task.phases for batch in phase)
        assert costs[task.client] - planner.batch_size == planned
