"""A split that clients have reported: counts of everyone, samples of those whose data are here."""

import numpy as np
import pytest

from fedblade.core.errors import Misconfigured
from fedblade.partitions import Reported

TABLE = np.array([[2, 0, 1], [0, 0, 0], [1, 1, 1]])


def test_counts_are_those_that_were_reported():
    split = Reported(TABLE, np.zeros(0, dtype=np.int64))
    assert (split.num_clients, split.num_classes) == (3, 3)
    assert split.sizes().tolist() == [3, 0, 3]
    assert split.counts(0, 4).tolist() == [2, 0, 1]
    assert split.table().tolist() == TABLE.tolist()
    assert split.table(2).tolist() == TABLE[:2].tolist()
    assert split.removed(0, 0) is None


def test_samples_are_those_of_the_clients_that_are_here():
    split = Reported(TABLE, np.array([0, 2, 0]), {0: np.arange(3)})
    assert split.part(0).tolist() == [0, 1, 2]
    assert split.indices(0, 7).tolist() == [0, 1, 2]
    assert np.bincount(split.labels[split.part(0)], minlength=3).tolist() == split.counts(0, 0).tolist()
    with pytest.raises(Misconfigured, match="the data of client 2 are not on this machine; they stay with the client"):
        split.indices(2, 0)


@pytest.mark.parametrize("client", [-1, 3])
def test_there_are_no_other_clients(client):
    split = Reported(TABLE, np.zeros(0, dtype=np.int64))
    with pytest.raises(IndexError):
        split.part(client)
    with pytest.raises(IndexError):
        split.counts(client, 0)


def test_the_digest_is_that_of_the_table():
    first = Reported(TABLE, np.zeros(0, dtype=np.int64)).digest()
    assert Reported(TABLE.astype(np.int32), np.array([1]), {0: np.arange(1)}).digest() == first
    assert Reported(np.asfortranarray(TABLE), np.zeros(0, dtype=np.int64)).digest() == first
    assert Reported(TABLE.T.copy(), np.zeros(0, dtype=np.int64)).digest() != first
    assert Reported(TABLE.reshape(1, 9), np.zeros(0, dtype=np.int64)).digest() != first
