"""The other partitioners, the public functions and the registry."""

import inspect
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

from fedblade import partitions
from fedblade.core.registry import partitions as registry
from fedblade.partitions import (
    IID,
    Dirichlet,
    DirichletClients,
    DirichletGroups,
    Domain,
    Drawn,
    File,
    Given,
    Labels,
    Natural,
    Partitioner,
    Pathological,
    Shards,
    StochasticRemoval,
)

BALANCED = np.arange(2000) % 10
NAMES = {
    "iid": IID,
    "dirichlet": Dirichlet,
    "dirichlet_clients": DirichletClients,
    "dirichlet_groups": DirichletGroups,
    "file": File,
    "given": Given,
    "labels": Labels,
    "pathological": Pathological,
    "shards": Shards,
    "domain": Domain,
    "drawn": Drawn,
    "natural": Natural,
    "stochastic_removal": StochasticRemoval,
}


def test_registry_lists_every_partitioner_with_a_summary_and_knobs():
    assert registry.names() == sorted(NAMES)
    for name, make in NAMES.items():
        entry = registry.get(name)
        assert entry.make is make
        assert entry.summary.endswith((".", "?"))
        assert isinstance(entry.make(), Partitioner)
    assert {name: [p.default for p in registry.get(name).knobs().values()] for name in NAMES} == {
        "iid": [],
        "dirichlet": [0.1, True, 10, False, False],
        "dirichlet_clients": [0.1, "equal", 0.3, "clients"],
        "dirichlet_groups": [0.1, 10],
        "file": ["", False],
        "given": [],
        "labels": [2],
        "pathological": [2],
        "shards": [2],
        "domain": [0.5],
        "drawn": [50, 2],
        "natural": [],
        "stochastic_removal": [10, 10],
    }


def test_knobs_are_frozen():
    with pytest.raises(FrozenInstanceError):
        Shards().shards_per_client = 3  # type: ignore[misc]


def test_everything_public_is_documented():
    for name in partitions.__all__:
        thing = getattr(partitions, name)
        if callable(thing):
            assert inspect.getdoc(thing), name


SEEDED = [
    IID(),
    Dirichlet(0.5),
    DirichletClients(0.5),
    DirichletClients(0.5, "lognormal", 0.5, "samples"),
    DirichletGroups(0.5),
    Labels(3),
    Pathological(3),
    Shards(2),
    StochasticRemoval(2),
    Domain(0.5),
]


@pytest.mark.parametrize("partitioner", SEEDED, ids=lambda value: type(value).__name__)
def test_same_seed_same_digest_and_other_seed_other_digest(partitioner):
    groups = np.arange(2000) % 20
    digests = [partitioner.split(BALANCED, 20, seed, groups=groups).digest() for seed in (0, 0, 1, 2)]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_iid_sizes_differ_by_one_at_most():
    split = IID().split(np.arange(103) % 7, 10, 0)
    assert sorted(set(split.sizes())) == [10, 11]
    assert split.sizes().sum() == 103


def test_iid_is_shuffled():
    labels = np.repeat(np.arange(10), 500)
    table = IID().split(labels, 10, 0).table()
    assert abs(table - 50).max() < 30
    assert table.min() != table.max()


@pytest.mark.parametrize(("clients", "wanted"), [(10, 2), (5, 2), (4, 3), (50, 2), (7, 10)])
def test_pathological_clients_hold_exactly_m_classes_split_evenly(clients, wanted):
    labels = np.random.default_rng(0).integers(0, 10, 2000)
    table = Pathological(wanted).split(labels, clients, 0).table()
    assert ((table > 0).sum(axis=1) == wanted).all()
    for column, amount in zip(table.T, np.bincount(labels), strict=True):
        held = column[column > 0]
        assert held.sum() == amount
        assert held.max() - held.min() <= 1


def test_pathological_hands_out_new_classes_in_order_first():
    table = Pathological(3).split(BALANCED, 6, 0).table() > 0
    for client in range(3):
        assert np.flatnonzero(table[client]).tolist() == [3 * client, 3 * client + 1, 3 * client + 2]
    assert table[3, 9]


def test_pathological_picks_the_rest_uniformly():
    labels = np.arange(40_000) % 10
    holders = (Pathological(3).split(labels, 4000, 0).table() > 0)[4:].sum(axis=0)
    assert abs(holders - 1200).max() < 120


def test_pathological_does_not_depend_on_the_chunk_size(monkeypatch):
    from fedblade.partitions import _pathological

    whole = Pathological(3).split(BALANCED, 20, 0)
    monkeypatch.setattr(_pathological, "_CHUNK_CELLS", 25)
    assert Pathological(3).split(BALANCED, 20, 0).digest() == whole.digest()


@pytest.mark.parametrize(("clients", "per_client"), [(10, 2), (20, 4), (100, 2), (5, 2)])
def test_shards_are_of_equal_size_for_balanced_classes(clients, per_client):
    split = Shards(per_client).split(BALANCED, clients, 0)
    assert set(split.sizes()) == {2000 // clients}
    shard = 2000 // (clients * per_client)
    assert (split.table() == split.shares * shard).all()
    assert (split.shares.sum(axis=1) == per_client).all()
    assert (split.shares.sum(axis=0) == clients * per_client // 10).all()


def test_shards_that_do_not_divide_are_spread():
    split = Shards(3).split(BALANCED, 7, 0)
    assert sorted(split.shares.sum(axis=0)) == [2] * 9 + [3]
    assert split.sizes().sum() == 2000


def test_shards_are_shuffled():
    splits = [Shards(2).split(BALANCED, 100, seed).shares for seed in (0, 1)]
    assert (splits[0] != splits[1]).any()
    assert 0 < (splits[0] == 2).sum() < 40


@pytest.mark.parametrize("partitioner", [Pathological(2), Shards(2)])
def test_classes_that_do_not_occur_are_not_dealt(partitioner):
    labels = np.array([1, 4, 7] * 20)
    split = partitioner.split(labels, 6, 0, num_classes=9)
    assert set(np.flatnonzero(split.shares.sum(axis=0))) == {1, 4, 7}
    assert len(split.order) == 60


def test_domain_truncates_every_domain_to_a_fraction_of_the_smallest():
    groups = np.array(["web"] * 50 + ["dslr"] * 31 + ["amazon"] * 90)
    labels = np.arange(171) % 5
    split = Domain(0.5).split(labels, 3, 0, groups=groups)
    assert split.groups.tolist() == ["amazon", "dslr", "web"]
    assert split.sizes().tolist() == [15, 15, 15]
    for client, name in enumerate(split.groups):
        assert set(groups[split.part(client)]) == {name}
    assert len(split.unused()) == 171 - 45
    assert not set(split.unused()) & set(split.order)
    assert split.part(0).tolist() != list(range(81, 96))
    assert split.shares is None


@pytest.mark.parametrize(("fraction", "size"), [(0.05, 5), (0.29, 29), (1, 100), (0.999, 99), (2 / 3, 66)])
def test_domain_takes_the_fraction_as_written(fraction, size):
    split = Domain(fraction).split(np.arange(200) % 2, 2, 0, groups=np.repeat([0, 1], 100))
    assert split.sizes().tolist() == [size, size]


def test_natural_clients_are_the_groups():
    groups = np.array([30, 10, 20, 10, 30, 30])
    split = Natural().split([0, 1, 0, 1, 1, 0], 3, 0, groups=groups)
    assert split.groups.tolist() == [10, 20, 30]
    assert [part.tolist() for part in split.parts()] == [[1, 3], [2], [0, 4, 5]]


def test_natural_samples_groups_when_there_are_more_than_clients():
    groups = np.repeat(np.arange(50), 4)
    labels = np.arange(200) % 3
    split = Natural().split(labels, 20, 0, groups=groups)
    assert len(set(split.groups)) == 20
    assert (np.diff(split.groups) > 0).all()
    assert split.groups.tolist() != list(range(20))
    for client, group in enumerate(split.groups):
        assert split.part(client).tolist() == list(range(4 * group, 4 * group + 4))
    assert split.groups.tolist() != Natural().split(labels, 20, 1, groups=groups).groups.tolist()


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_groups_and_labels_may_be_lists_arrays_or_tensors(kind):
    labels, groups = [0, 1] * 10, [0, 1, 2, 3] * 5
    split = Natural().split(kind(labels), 4, 0, groups=kind(groups))
    assert split.table().tolist() == [[5, 0], [0, 5], [5, 0], [0, 5]]


def test_strings_held_as_objects_are_groups_too():
    groups = np.array(["b", "a"] * 6, dtype=object)
    assert Natural().split([0, 1, 2] * 4, 2, 0, groups=groups).groups.tolist() == ["a", "b"]


CALLS = [
    (lambda labels, seed: partitions.iid(labels, 8, seed), IID()),
    (lambda labels, seed: partitions.dirichlet(labels, 8, 0.5, seed), Dirichlet(0.5)),
    (lambda labels, seed: partitions.dirichlet(labels, 8, 0.5, seed, False, 3), Dirichlet(0.5, cap=False, min_size=3)),
    (lambda labels, seed: partitions.pathological(labels, 8, 3, seed), Pathological(3)),
    (lambda labels, seed: partitions.shards(labels, 8, 5, seed), Shards(5)),
]


@pytest.mark.parametrize("kind", [list, np.asarray, torch.as_tensor, lambda x: x.astype(np.uint8)])
@pytest.mark.parametrize(("call", "partitioner"), CALLS)
def test_functions_return_the_parts_of_the_partitioner(call, partitioner, kind):
    parts = call(kind(BALANCED), 5)
    expected = partitioner.split(BALANCED, 8, 5)
    assert isinstance(parts, list)
    assert len(parts) == 8
    for client, part in enumerate(parts):
        assert part.dtype == np.int64
        assert part.tolist() == expected.part(client).tolist()


def test_the_minimum_size_reaches_the_partitioner():
    smallest = [min(map(len, partitions.dirichlet(BALANCED, 10, 0.5, 3, min_size=size))) for size in (0, 150)]
    assert smallest[0] < 150 <= smallest[1]


def test_functions_have_the_signatures_of_the_contract():
    def told(function):
        return [(p.name, p.default) for p in inspect.signature(function).parameters.values()]

    needed = inspect.Parameter.empty
    start = [("labels", needed), ("num_clients", needed)]
    assert told(partitions.iid) == [*start, ("seed", 0)]
    assert told(partitions.pathological) == [*start, ("classes_per_client", needed), ("seed", 0)]
    assert told(partitions.shards) == [*start, ("shards_per_client", needed), ("seed", 0)]
    assert told(partitions.dirichlet) == [*start, ("alpha", needed), ("seed", 0), ("cap", True), ("min_size", 10)]


def test_a_million_clients_fit():
    labels = np.arange(1_000_000) % 10
    split = IID().split(labels, 1_000_000, 0)
    assert split.part(999_999).shape == (1,)
    assert split.shares.strides == (0, 0)
