"""Laws every split obeys, on random labels, client counts and knobs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.partitions import (
    IID,
    Dirichlet,
    Domain,
    Natural,
    Pathological,
    Shards,
    StochasticRemoval,
    split_test,
)
from fedblade.partitions._split import cuts

SEEDS = st.integers(0, 2**32)


@st.composite
def requests(draw):
    """Labels of two to six classes, unevenly filled, and a number of clients."""
    sizes = draw(st.lists(st.integers(12, 60), min_size=2, max_size=6))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    order = np.random.default_rng(draw(SEEDS)).permutation(len(labels))
    return labels[order], draw(st.integers(1, 12))


@st.composite
def exhaustive_splits(draw):
    """A split that uses every sample, by any partitioner that promises to."""
    labels, clients = draw(requests())
    classes = int(labels.max()) + 1
    least = -(-classes // clients)
    partitioner = draw(
        st.one_of(
            st.just(IID()),
            st.builds(
                Dirichlet,
                st.sampled_from([1e-4, 0.05, 0.5, 5.0, 1e6]),
                cap=st.booleans(),
                min_size=st.just(0),
                allow_empty=st.just(True),
            ),
            st.builds(Pathological, st.integers(least, classes)),
            st.builds(Shards, st.integers(least, least + 3)),
            st.builds(StochasticRemoval, st.integers(least, least + 3), st.integers(1, 5)),
            st.just(Natural()),
        )
    )
    groups = np.arange(len(labels)) % clients
    return partitioner, labels, clients, groups, draw(SEEDS)


@settings(max_examples=150, deadline=None)
@given(exhaustive_splits())
def test_parts_are_disjoint_and_exhaustive(case):
    partitioner, labels, clients, groups, seed = case
    split = partitioner.split(labels, clients, seed, groups=groups)
    assert split.num_clients == clients
    assert np.concatenate([split.part(k) for k in range(clients)]).tolist() == split.order.tolist()
    assert np.sort(split.order).tolist() == list(range(len(labels)))
    assert len(split.unused()) == 0
    assert all((np.diff(split.part(k)) > 0).all() for k in range(clients))


@settings(max_examples=150, deadline=None)
@given(exhaustive_splits())
def test_tables_add_up(case):
    partitioner, labels, clients, groups, seed = case
    split = partitioner.split(labels, clients, seed, groups=groups)
    table = split.table()
    assert table.sum(axis=0).tolist() == np.bincount(labels).tolist()
    assert table.sum(axis=1).tolist() == split.sizes().tolist()
    for client in range(clients):
        assert table[client].tolist() == np.bincount(labels[split.part(client)], minlength=split.num_classes).tolist()
        if split.removal is None:
            assert split.counts(client, 3).tolist() == table[client].tolist()
        if split.shares is not None and not isinstance(partitioner, IID):
            assert (table[client][split.shares[client] == 0] == 0).all()


@settings(max_examples=80, deadline=None)
@given(exhaustive_splits())
def test_same_seed_same_digest(case):
    partitioner, labels, clients, groups, seed = case
    first, again = (partitioner.split(labels.copy(), clients, seed, groups=groups) for _ in range(2))
    assert first.digest() == again.digest()


@settings(max_examples=80, deadline=None)
@given(requests(), st.floats(0.02, 1.0), SEEDS)
def test_domains_are_equal_disjoint_and_pure(request_, fraction, seed):
    labels, clients = request_
    groups = np.random.default_rng(seed).permutation(np.arange(len(labels)) * clients // len(labels))
    smallest = int(np.bincount(groups).min())
    if fraction * smallest < 1:
        return
    split = Domain(fraction).split(labels, clients, seed, groups=groups)
    assert len(set(split.sizes())) == 1
    assert -1e-9 <= fraction * smallest - int(split.sizes()[0]) < 1
    assert len(set(split.order)) == len(split.order)
    assert (groups[split.order] == split.owners()).all()
    assert sorted([*split.order, *split.unused()]) == list(range(len(labels)))


@settings(max_examples=100, deadline=None)
@given(exhaustive_splits(), st.integers(0, 60))
def test_a_removed_class_is_whole_and_single(case, round_index):
    partitioner, labels, clients, groups, seed = case
    split = partitioner.split(labels, clients, seed, groups=groups)
    for client in range(clients):
        removed, part = split.removed(client, round_index), split.part(client)
        held = set(labels[part])
        assert (removed is not None) == (isinstance(partitioner, StochasticRemoval) and len(held) > 1)
        kept = split.indices(client, round_index)
        assert kept.tolist() == [i for i in part.tolist() if labels[i] != removed]
        assert len(kept) > 0 or len(part) == 0
        assert split.counts(client, round_index).sum() == len(kept)


@settings(max_examples=80, deadline=None)
@given(exhaustive_splits(), SEEDS)
def test_test_splits_hold_valid_samples(case, test_seed):
    partitioner, labels, clients, groups, seed = case
    split = partitioner.split(labels, clients, seed, groups=groups)
    test_labels = labels[: max(2, len(labels) // 4)]
    for name in ("matched", "proportional", "holdout"):
        tests = split_test(name, split, test_labels, test_seed, test_groups=groups[: len(test_labels)])
        where = labels if tests.source == "train" else test_labels
        for client in range(clients):
            part = tests.part(client)
            assert len(set(part)) == len(part) == tests.sizes()[client]
            assert ((part >= 0) & (part < len(where))).all()
            if name == "matched":
                assert set(where[part]) <= set(labels[split.part(client)])
        if name != "matched":
            assert len(set(tests.order)) == len(tests.order)
        if name == "proportional":
            assert len(tests.order) == len(test_labels)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.just(0.0), st.floats(1e-12, 1.0)), min_size=1, max_size=30), st.integers(0, 10**6))
def test_cuts_of_fractions_lose_nothing_and_respect_zeros(shares, amount):
    weights = np.array(shares)
    if weights.sum() > 0:
        weights = weights / weights.sum()
    given_out = np.diff(cuts(weights, amount), prepend=0)
    assert (given_out >= 0).all()
    assert given_out.sum() == (amount if weights.sum() > 0 else 0)
    assert (given_out[weights == 0] == 0).all()
    assert (abs(np.cumsum(given_out) - np.cumsum(weights) * amount) < 1 + 1e-6).all()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=30), st.integers(0, 10**9))
def test_cuts_of_whole_numbers_are_exact(shares, amount):
    total, running, expected = max(sum(shares), 1), 0, []
    for share in shares:
        running += share
        expected.append(running * amount // total)
    assert cuts(np.array(shares), amount).tolist() == expected
