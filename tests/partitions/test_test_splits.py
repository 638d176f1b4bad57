"""The four test splits against slow references."""

from fractions import Fraction

import numpy as np
import pytest

from fedblade.partitions import (
    IID,
    Dirichlet,
    Domain,
    Natural,
    Pathological,
    Shards,
    Split,
    StochasticRemoval,
    split_test,
)
from fedblade.partitions._test_splits import largest_remainder

TRAIN = np.random.default_rng(0).integers(0, 6, 1200)
TESTS = np.random.default_rng(1).integers(0, 6, 301)


@pytest.fixture(scope="module")
def skewed():
    return Dirichlet(0.3, min_size=5).split(TRAIN, 15, 0)


def counts_of(tests, labels, client, num_classes=6):
    return np.bincount(labels[tests.part(client)], minlength=num_classes)


def test_global_is_shared_and_stored_once(skewed):
    tests = split_test("global", skewed, TESTS, 0)
    assert tests.source == "test"
    assert tests.train is skewed
    assert tests.part(0) is tests.part(14)
    assert tests.part(3).tolist() == list(range(301))
    assert tests.sizes().tolist() == [301] * 15


def slow_quota(total, row):
    """Largest remainder, one seat at a time."""
    if sum(row) == 0:
        return [0] * len(row)
    exact = [Fraction(total * int(n), int(sum(row))) for n in row]
    seats = [int(value) for value in exact]
    while sum(seats) < total:
        # A class gets one extra seat at most: after it the remainder is negative.
        winner = max(range(len(row)), key=lambda c: (exact[c] - seats[c], -c))
        seats[winner] += 1
    return seats


def test_largest_remainder_matches_the_slow_reference():
    generator = np.random.default_rng(2)
    table = generator.integers(0, 12, (300, 7)) * generator.integers(0, 2, (300, 7))
    table[0] = 0
    totals = generator.integers(1, 40, 300)
    counts = largest_remainder(totals, table)
    for row, total, given in zip(table, totals, counts, strict=True):
        assert given.tolist() == slow_quota(int(total), row)


def test_largest_remainder_breaks_ties_towards_the_lower_class():
    assert largest_remainder(np.array([2]), np.array([[5, 5, 5]])).tolist() == [[1, 1, 0]]


def test_matched_follows_size_and_class_mix_of_training(skewed):
    tests = split_test("matched", skewed, TESTS, 0)
    assert tests.source == "test"
    assert tests.train is skewed
    available = np.bincount(TESTS)
    capped = 0
    for client, row in enumerate(skewed.table()):
        total = max(1, round(Fraction(int(row.sum()) * 301, 1200)))
        wanted = np.array(slow_quota(total, row))
        capped += (wanted > available).any()
        assert counts_of(tests, TESTS, client).tolist() == np.minimum(wanted, available).tolist()
        assert len(set(tests.part(client))) == len(tests.part(client))
    assert capped < 15
    assert (tests.sizes() == [len(tests.part(k)) for k in range(15)]).all()


def test_matched_takes_all_there_is_of_a_scarce_class():
    split = Split(np.arange(40), np.array([0, 20, 40]), np.repeat([0, 1], 20), 2)
    tests = split_test("matched", split, [0] * 18 + [1] * 2, 0)
    assert [counts_of(tests, np.repeat([0, 1], [18, 2]), k, 2).tolist() for k in (0, 1)] == [[10, 0], [0, 2]]


def test_matched_counts_tests_on_as_many_samples_of_a_class_as_are_trained_on(skewed):
    """As far as the test set goes, and on a part of it of each client's own."""
    tests = split_test("matched_counts", skewed, TESTS, 0)
    labels, available = np.array(TESTS), np.bincount(TESTS, minlength=skewed.num_classes)
    trained = skewed.table()
    assert (trained > available).any()
    for client, counts in enumerate(trained):
        mine = tests.part(client)
        assert len(set(mine.tolist())) == len(mine)
        found = np.bincount(labels[mine], minlength=skewed.num_classes)
        assert found.tolist() == np.minimum(counts, available).tolist()


def test_matched_gives_at_least_one_sample_but_nothing_to_an_empty_client():
    labels = np.array([0, 1] * 50)
    split = Split(np.arange(100), np.array([0, 1, 1, 100]), labels, 2)
    tests = split_test("matched", split, [0, 1, 0, 1], 0)
    assert tests.sizes().tolist() == [1, 0, 4]
    nowhere = split_test("matched", split, [1, 1, 1, 1], 0)
    assert nowhere.sizes().tolist() == [0, 0, 2]


def test_matched_rounds_half_to_even():
    labels = np.zeros(8, dtype=np.int64)
    split = Split(np.arange(8), np.array([0, 3, 8]), labels, 1)
    assert split_test("matched", split, [0] * 4, 0).sizes().tolist() == [2, 2]


def test_matched_clients_draw_independently_and_overlap():
    split = IID().split(TRAIN, 10, 0)
    tests = split_test("matched", split, TESTS, 0)
    drawn = np.concatenate([tests.part(k) for k in range(10)])
    assert len(set(drawn)) < len(drawn)
    assert len(set(drawn)) > 0.5 * len(drawn)


def test_proportional_applies_the_training_shares_to_the_test_set():
    train, test = np.repeat(np.arange(5), 400), np.repeat(np.arange(5), 100)
    for partitioner in (Dirichlet(0.5), Dirichlet(0.5, cap=False)):
        split = partitioner.split(train, 8, 0)
        tests = split_test("proportional", split, test, 0)
        table = np.stack([counts_of(tests, test, k, 5) for k in range(8)])
        cut = np.floor(np.cumsum(split.table(), axis=0) / 4 + 1e-9)
        assert abs(np.cumsum(table, axis=0) - cut).max() <= 1
        assert sorted(tests.order) == list(range(500))


@pytest.mark.parametrize("partitioner", [Shards(2), Shards(4), Pathological(2), StochasticRemoval(3)])
def test_proportional_keeps_the_deal_of_shards_and_classes(partitioner):
    train, test = np.arange(2000) % 10, np.arange(400) % 10
    split = partitioner.split(train, 20, 0)
    tests = split_test("proportional", split, test, 0)
    table = np.stack([counts_of(tests, test, k, 10) for k in range(20)])
    assert ((table > 0) == (split.table() > 0)).all()
    assert sorted(tests.order) == list(range(400))


def test_proportional_for_iid_is_even():
    tests = split_test("proportional", IID().split(TRAIN, 4, 0), np.arange(120) % 6, 0)
    assert [counts_of(tests, np.arange(120) % 6, k).tolist() for k in range(4)] == [[5] * 6] * 4


def test_proportional_goes_by_group_where_the_split_does():
    train_groups, labels = np.array(["c", "a", "b", "a"] * 10), np.arange(40) % 3
    test_groups = np.array(["b", "z", "a", "aa", "b", "c"])
    for partitioner in (Natural(), Domain(0.5)):
        split = partitioner.split(labels, 3, 0, groups=train_groups)
        tests = split_test("proportional", split, [0, 1, 2, 0, 1, 2], 0, test_groups=test_groups)
        assert [tests.part(k).tolist() for k in range(3)] == [[2], [0, 4], [5]]


def test_proportional_leaves_a_class_nobody_holds_to_nobody():
    split = Shards(2).split(np.array([0, 2] * 20), 4, 0, num_classes=3)
    tests = split_test("proportional", split, np.array([0, 1, 2] * 10), 0)
    assert 1 not in np.array([0, 1, 2] * 10)[tests.order]
    assert len(tests.order) == 20


def test_holdout_takes_thirty_percent_of_each_client_rounded_down(skewed):
    tests = split_test("holdout", skewed, [], 0)
    assert tests.source == "train"
    assert tests.train is not skewed
    for client in range(15):
        part, kept, held = skewed.part(client), tests.train.part(client), tests.part(client)
        assert len(held) == int(Fraction(3, 10) * len(part))
        assert sorted([*kept, *held]) == part.tolist()
        assert tests.train.counts(client, 0).sum() == len(kept)
    assert (tests.train.table() + np.stack([counts_of(tests, TRAIN, k) for k in range(15)]) == skewed.table()).all()
    assert tests.train.digest() != skewed.digest()


def test_holdout_is_a_random_part_and_tiny_clients_keep_everything():
    split = Split(np.arange(1006), np.array([0, 3, 3, 1003, 1006]), np.zeros(1006, dtype=np.int64), 2)
    tests = split_test("holdout", split, [], 0)
    assert tests.sizes().tolist() == [0, 0, 300, 0]
    assert abs(tests.part(2).mean() - 502) < 60
    assert len(set(np.diff(tests.part(2)))) > 3


def test_holdout_keeps_the_removal_rule():
    split = StochasticRemoval(3, 10).split(np.arange(600) % 6, 10, 0)
    tests = split_test("holdout", split, [], 0)
    assert tests.train.removal == split.removal


@pytest.mark.parametrize("name", ["matched", "proportional", "holdout"])
def test_test_splits_are_reproducible_and_follow_the_seed(name, skewed):
    first, again, other = (split_test(name, skewed, TESTS, seed) for seed in (4, 4, 5))
    assert first.order.tolist() == again.order.tolist()
    assert first.order.tolist() != other.order.tolist()


def test_test_draws_differ_from_training_draws():
    labels = np.repeat([0, 1], 200)
    split = Pathological(2).split(labels, 2, 0)
    tests = split_test("proportional", split, labels, 0)
    assert tests.part(0).tolist() != split.part(0).tolist()


@pytest.mark.parametrize("client", [-1, 15])
@pytest.mark.parametrize("name", ["global", "holdout"])
def test_a_client_that_does_not_exist(name, client, skewed):
    with pytest.raises(IndexError, match=f"client {client} of 15"):
        split_test(name, skewed, TESTS, 0).part(client)
