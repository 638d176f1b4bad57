"""The `Split` type: reading it, dealing by shares, removing classes."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from fedblade.partitions import IID, Removal, Shards, Split, StochasticRemoval
from fedblade.partitions._split import NOBODY, cuts, deal, gather

LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1])


def small(**facts):
    """Client 0 holds samples 0, 3, 4; client 1 none; client 2 holds 1, 7; 2, 5, 6 are free."""
    return Split(np.array([0, 3, 4, 1, 7]), np.array([0, 3, 3, 5]), LABELS, 4, **facts)


def test_reading_a_split():
    split = small()
    assert split.num_clients == 3
    assert [part.tolist() for part in split.parts()] == [[0, 3, 4], [], [1, 7]]
    assert split.indices(0, 5).tolist() == [0, 3, 4]
    assert split.counts(0, 5).tolist() == [2, 1, 0, 0]
    assert split.counts(1, 5).tolist() == [0, 0, 0, 0]
    assert split.sizes().tolist() == [3, 0, 2]
    assert split.table().tolist() == [[2, 1, 0, 0], [0, 0, 0, 0], [0, 2, 0, 0]]
    assert split.owners().tolist() == [0, 0, 0, 2, 2]
    assert split.unused().tolist() == [2, 5, 6]
    assert split.removed(0, 5) is None


@pytest.mark.parametrize("client", [-1, 3])
def test_a_client_that_does_not_exist(client):
    with pytest.raises(IndexError, match=f"client {client} of 3"):
        small().part(client)


def test_part_is_a_view():
    split = small()
    assert split.part(0).base is split.order


def test_digest_is_stable_and_sees_every_difference():
    split = small()
    text = hashlib.sha256(b"clients=3 removal=")
    for values in ([0, 3, 3, 5], [0, 3, 4, 1, 7]):
        for value in values:
            text.update(value.to_bytes(8, "little"))
    assert split.digest() == text.hexdigest()
    others = [
        replace(split, order=np.array([0, 3, 5, 1, 7])),
        replace(split, offsets=np.array([0, 2, 3, 5])),
        replace(split, removal=Removal(10, 0)),
        replace(split, removal=Removal(10, 1)),
        replace(split, removal=Removal(5, 0)),
    ]
    assert len({split.digest(), *(other.digest() for other in others)}) == 6


def test_digest_of_a_fixed_split_is_the_same_on_every_machine():
    assert IID().split(np.arange(40) % 4, 3, 7).digest() == (
        "5738e74f4f3a17e94cb76a58e8003e0cfd0643a8aed3386376237da236523508"
    )


def test_whole_number_shares_are_cut_exactly():
    big = 10**9
    assert 1 / 49 * 49 < 1
    assert cuts(np.ones(49, dtype=np.int64), 49).tolist() == list(range(1, 50))
    assert cuts(np.array([1, 1, 1]), 10).tolist() == [3, 6, 10]
    assert cuts(np.array([2, 0, 1, 0]), 9).tolist() == [6, 6, 9, 9]
    assert cuts(np.array([1, big - 1, big]), big - 1).tolist() == [(big - 1) // (2 * big), (big - 1) // 2, big - 1]


def test_fractions_that_round_short_of_one_lose_nothing():
    tenths = np.full(10, 0.1)
    assert np.cumsum(tenths)[-1] < 1.0
    shares = np.concatenate((tenths, [0.0, 0.0]))
    cut = cuts(shares, 1000)
    assert cut[9:].tolist() == [1000, 1000, 1000]


def test_fractions_that_round_above_one_give_no_more_than_there_is():
    shares = np.array([0.7, 0.2, 0.1]) * (1 + 1e-15)
    assert cuts(shares, 10**15).max() == 10**15


def test_cuts_work_row_by_row():
    rows = np.array([[0.5, 0.5], [0.25, 0.75], [0.0, 0.0]])
    assert cuts(rows, 8).tolist() == [[4, 8], [2, 8], [0, 0]]


def test_deal_follows_the_shares_and_skips_classes_nobody_takes():
    labels = np.array([0] * 6 + [1] * 4 + [3] * 5)
    shares = np.array([[2, 0, 1, 0], [1, 1, 0, 0]])
    owners = deal(shares, labels, 0, 1)
    assert np.bincount(owners[:6]).tolist() == [4, 2]
    assert owners[6:10].tolist() == [1] * 4
    assert owners[10:].tolist() == [NOBODY] * 5


def test_deal_shuffles_by_seed_and_purpose():
    labels, shares = np.zeros(200, dtype=np.int64), np.ones((2, 1), dtype=np.int64)
    first = deal(shares, labels, 0, 1)
    assert (first == deal(shares, labels, 0, 1)).all()
    for other in (deal(shares, labels, 1, 1), deal(shares, labels, 0, 2), np.repeat([0, 1], 100)):
        assert 50 < (first != other).sum() < 150


def test_classes_are_shuffled_independently():
    labels, shares = np.repeat([0, 1], 200), np.ones((2, 2), dtype=np.int64)
    owners = deal(shares, labels, 0, 1)
    assert 50 < (owners[:200] != owners[200:]).sum() < 150


def test_gather_sorts_within_clients_and_keeps_empty_ones():
    order, offsets = gather(np.array([2, 0, NOBODY, 2, 0, NOBODY]), 4)
    assert order.tolist() == [1, 4, 0, 3]
    assert offsets.tolist() == [0, 2, 2, 4, 4]


@pytest.fixture(scope="module")
def removing():
    return StochasticRemoval(shards_per_client=4, every=10).split(np.arange(2000) % 10, 20, 3)


def test_removal_keeps_the_shards(removing):
    plain = Shards(4).split(np.arange(2000) % 10, 20, 3)
    assert (removing.order == plain.order).all()
    assert (removing.table() == plain.table()).all()
    assert removing.digest() != plain.digest()


def test_removal_takes_the_period_and_the_seed_of_the_split():
    assert StochasticRemoval(4, every=3).split(np.arange(200) % 10, 5, 8).removal == Removal(every=3, seed=8)


def test_one_class_at_a_time_is_removed_and_comes_back(removing):
    full = removing.table()
    seen = {client: set() for client in range(20)}
    for round_index in range(0, 400, 10):
        for client in range(20):
            counts = removing.counts(client, round_index)
            missing = np.flatnonzero((counts == 0) & (full[client] > 0))
            kept = np.flatnonzero(counts)
            assert len(missing) == 1
            assert (counts[kept] == full[client, kept]).all()
            assert missing[0] == removing.removed(client, round_index)
            indices = removing.indices(client, round_index)
            assert set(indices) == {i for i in removing.part(client) if removing.labels[i] != missing[0]}
            seen[client].add(int(missing[0]))
    # 40 blocks leave one of at most four classes out by chance less than once in 10**4 clients.
    assert all(seen[client] == set(np.flatnonzero(full[client])) for client in range(20))


def test_removal_changes_at_rounds_divisible_by_every_only(removing):
    drawn = [[removing.removed(client, t) for client in range(20)] for t in range(30)]
    for block in (0, 10, 20):
        assert all(row == drawn[block] for row in drawn[block : block + 10])
    assert drawn[0] != drawn[10] != drawn[20]
    other_period = replace(removing, removal=Removal(3, 3))
    blocks = [[other_period.removed(client, t) for client in range(20)] for t in range(9)]
    assert blocks[0] == blocks[2] == drawn[0]
    assert blocks[3] == blocks[5] == drawn[10]


def test_removal_does_not_depend_on_what_was_asked_before(removing):
    again = StochasticRemoval(4, 10).split(np.arange(2000) % 10, 20, 3)
    backwards = {(k, t): again.removed(k, t) for t in (25, 10, 0) for k in reversed(range(20))}
    assert all(removing.removed(k, t) == drawn for (k, t), drawn in backwards.items())


def test_clients_and_seeds_draw_independently():
    split = StochasticRemoval(10, 10).split(np.arange(2000) % 10, 20, 3)
    same_classes = replace(
        split, labels=np.arange(2000) % 10, order=np.tile(np.arange(100), 20), offsets=np.arange(21) * 100
    )
    drawn = [same_classes.removed(client, 0) for client in range(20)]
    other = replace(same_classes, removal=Removal(10, 4))
    assert len(set(drawn)) > 3
    assert drawn != [other.removed(client, 0) for client in range(20)]


def test_removal_is_uniform_over_the_classes_of_a_client():
    split = Split(np.arange(8), np.array([0, 8]), np.array([0, 0, 0, 0, 0, 0, 1, 2]), 3, removal=Removal(1, 0))
    drawn = np.bincount([split.removed(0, t) for t in range(600)])
    assert (abs(drawn - 200) < 60).all()


def test_a_client_with_one_class_loses_nothing():
    split = Split(np.arange(4), np.array([0, 4]), np.ones(6, dtype=np.int64), 3, removal=Removal(10, 0))
    assert split.removed(0, 0) is None
    assert split.indices(0, 0).tolist() == [0, 1, 2, 3]
    empty = replace(split, order=np.arange(0), offsets=np.array([0, 0]))
    assert empty.removed(0, 0) is None
    assert empty.indices(0, 0).tolist() == []
