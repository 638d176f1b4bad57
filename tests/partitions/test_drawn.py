"""Clients that draw their samples when asked: deterministic, cheap for a million, and honest about what is held out."""

import tracemalloc
from collections import Counter

import numpy as np
import pytest

from fedblade.core.errors import Misconfigured
from fedblade.core.streams import Streams
from fedblade.partitions import VALIDATION, Drawn, DrawnSplit, Split, hold_out, split_test

LABELS = np.random.default_rng(0).permutation(np.arange(2000) % 10)
TESTS = np.random.default_rng(1).permutation(np.arange(400) % 10)
SHORT = np.concatenate([np.zeros(1, dtype=np.int64), np.repeat(np.arange(1, 10), 44)])
MILLION = 1_000_000


def split(clients=100, seed=3, samples=25, classes_per_client=3, labels=LABELS):
    return Drawn(samples, classes_per_client).split(labels, clients, seed)


def by_hand(seed, client, samples, classes_per_client, labels):
    """What a client draws, one class after another."""
    streams = Streams(seed)
    present = sorted(set(labels.tolist()))
    chosen = streams.numpy("partition", 0, client).choice(present, classes_per_client, replace=False)
    generator = streams.numpy("partition", 1, client)
    drawn = []
    for place, label in enumerate(chosen):
        members = [index for index, other in enumerate(labels) if other == label]
        amount = samples // classes_per_client + (1 if place < samples % classes_per_client else 0)
        drawn += [members[number] for number in generator.choice(len(members), amount, replace=False)]
    return sorted(drawn)


@pytest.mark.parametrize("client", [0, 7, 99])
def test_a_client_draws_what_the_slow_reference_draws(client):
    assert split().part(client).tolist() == by_hand(3, client, 25, 3, LABELS)


def test_every_client_holds_its_samples_once_and_of_its_classes_only():
    drawn = split()
    for client, part in enumerate(drawn.parts()):
        assert len(part) == len(set(part.tolist())) == 25
        assert (np.diff(part) > 0).all()
        counts = np.bincount(LABELS[part], minlength=10)
        assert sorted(counts[counts > 0].tolist()) == [8, 8, 9]
        assert drawn.counts(client, 0).tolist() == drawn.counts(client, 5).tolist() == counts.tolist()
        assert drawn.indices(client, 4).tolist() == part.tolist()
    assert drawn.sizes().tolist() == [25] * 100
    assert drawn.table().tolist() == [drawn.counts(client, 0).tolist() for client in range(100)]
    assert drawn.table(3).tolist() == drawn.table()[:3].tolist()
    assert drawn.table(1000).shape == (100, 10)


def test_a_client_does_not_depend_on_the_population_or_on_who_was_asked_before():
    few, many = split(clients=10), split(clients=MILLION)
    assert many.part(999_999).size == 25
    for client in (9, 0, 4):
        assert many.part(client).tolist() == few.part(client).tolist() == many.part(client).tolist()
    assert split(seed=4).part(0).tolist() != few.part(0).tolist()


def test_clients_overlap_and_draw_classes_evenly():
    drawn = split(clients=1000)
    held = Counter(int(label) for client in range(1000) for label in np.flatnonzero(drawn.counts(client, 0)))
    assert all(abs(held[label] - 300) < 5 * np.sqrt(300 * 0.7) for label in range(10))
    parts = [set(part.tolist()) for part in split(clients=200).parts()]
    assert sum(map(len, parts)) > len(set.union(*parts))


def test_classes_without_samples_are_not_drawn():
    labels = np.arange(600) % 3 * 2
    drawn = Drawn(6, 3).split(labels, 50, 0, num_classes=6)
    assert {tuple(drawn.counts(client, 0)) for client in range(50)} == {(2, 0, 2, 0, 2, 0)}


def test_a_million_clients_cost_no_memory_and_no_time_until_they_are_asked():
    tracemalloc.start()
    drawn = split(clients=MILLION)
    few = len(split(clients=10).digest())
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    assert drawn.num_clients == len(drawn.sizes()) == MILLION
    assert len(drawn.digest()) == few
    for client in range(0, MILLION, 20_000):
        drawn.part(client)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - before < 1_000_000


def test_the_digest_names_the_recipe_and_the_data():
    known = {
        split().digest(),
        split(clients=101).digest(),
        split(seed=4).digest(),
        split(samples=26).digest(),
        split(classes_per_client=2).digest(),
        split(labels=np.roll(LABELS, 1)).digest(),
    }
    assert len(known) == 6
    assert split().digest() == split().digest()


@pytest.mark.parametrize("client", [-1, 100])
def test_clients_that_there_are_not_are_refused(client):
    for ask in (split().part, lambda number: split().counts(number, 0), split_test("matched", split(), TESTS, 0).part):
        with pytest.raises(IndexError):
            ask(client)


def test_the_global_test_set_is_shared():
    tests = split_test("global", split(), TESTS, 0)
    assert tests.is_shared
    assert tests.part(5).tolist() == list(range(400))


def test_matched_tests_have_the_classes_of_the_client():
    drawn = split(clients=50)
    tests = split_test("matched", drawn, TESTS, 0)
    assert not tests.is_shared
    assert (tests.source, tests.train) == ("test", drawn)
    for client in range(50):
        part = tests.part(client)
        # 25 of 2000 are a share that gives 5 of 400.
        assert len(set(part.tolist())) == 5
        assert set(TESTS[part].tolist()) == set(LABELS[drawn.part(client)].tolist())
    assert tests.sizes().tolist() == [5] * 50
    assert tests.part(1).tolist() != tests.part(2).tolist()


def test_a_class_that_the_test_set_is_short_of_gives_all_it_has():
    drawn = split(clients=40, samples=60, classes_per_client=2)
    tests = split_test("matched", drawn, SHORT, 0)
    sizes = [len(tests.part(client)) for client in range(40)]
    has_zero = [bool(drawn.counts(client, 0)[0]) for client in range(40)]
    assert any(has_zero)
    assert sizes == [1 + 6 if zero else 12 for zero in has_zero]
    assert tests.sizes().tolist() == sizes


def test_the_sizes_of_clients_that_are_short_are_counted_once(monkeypatch):
    """They take a draw for every client, of which there may be a million."""
    short = split_test("matched", split(clients=30, samples=60), SHORT, 0).drawn
    asked = []
    held = DrawnSplit._class_amounts
    monkeypatch.setattr(DrawnSplit, "_class_amounts", lambda self, client: asked.append(client) or held(self, client))
    first, again = short.sizes().copy(), short.sizes()
    assert asked == list(range(30))
    assert first.tolist() == again.tolist() == [len(short.part(client)) for client in range(30)]
    with pytest.raises(ValueError, match="read-only"):
        again[0] = 0


def test_what_is_held_out_of_one_client_is_trained_on_by_no_other():
    drawn = split(clients=60, samples=40)
    tests = split_test("holdout", drawn, TESTS, 0)
    assert tests.source == "train"
    tested = set(np.concatenate([tests.part(client) for client in range(60)]).tolist())
    trained = set(np.concatenate([tests.train.part(client) for client in range(60)]).tolist())
    assert not tested & trained
    assert tested <= set(tests.order.tolist())
    assert len(tests.order) == 600
    for client in range(60):
        assert (len(tests.part(client)), len(tests.train.part(client))) == (12, 28)
        classes = set(LABELS[drawn.part(client)].tolist())
        assert set(LABELS[tests.part(client)].tolist()) == set(LABELS[tests.train.part(client)].tolist()) == classes
    assert tests.train.sizes().tolist() == [28] * 60
    assert tests.train.digest() != drawn.digest()


def test_validation_is_held_out_of_what_tests_leave():
    tests = split_test("holdout", split(clients=30, samples=40), TESTS, 0)
    held = hold_out(tests.train, 0, 10, VALIDATION)
    assert not set(held.order.tolist()) & set(tests.order.tolist())
    assert len(held.order) == 140
    assert held.train.sizes().tolist() == [26] * 30
    trained = set(np.concatenate(list(held.train.parts())).tolist())
    assert not trained & (set(held.order.tolist()) | set(tests.order.tolist()))


def test_proportional_tests_need_shares_that_there_are_not():
    with pytest.raises(Misconfigured, match="'matched' or 'global'"):
        split_test("proportional", split(), TESTS, 0)


def test_splits_of_other_kinds_that_cannot_hold_out_say_so():
    class Odd(DrawnSplit):
        pass

    assert hold_out(Odd(**vars(split())), 0, 10).train.num_clients == 100

    with pytest.raises(Misconfigured, match="object cannot hold data out"):
        hold_out(object(), 0, 10)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"samples": 0}, "samples=0"),
        ({"samples": 2.5}, "samples=2.5"),
        ({"classes_per_client": 0}, "classes_per_client=0"),
        ({"classes_per_client": 11}, "more than the 10 classes"),
        ({"samples": 3, "classes_per_client": 4}, "than samples=3"),
        ({"samples": 402, "classes_per_client": 2}, "draws 201 samples of a class.*has 200"),
    ],
)
def test_impossible_knobs_are_refused(knobs, message):
    with pytest.raises(Misconfigured, match=message):
        Drawn(**knobs).split(LABELS, 5, 0)


@pytest.mark.parametrize(("size", "classes", "samples"), [(7, 3, 21), (7, 3, 20), (5, 2, 9), (1, 4, 4), (10, 1, 10)])
def test_what_is_held_out_always_leaves_enough_to_train_on(size, classes, samples):
    """Even where clients draw all there is of a class."""
    drawn = Drawn(samples, classes).split(np.repeat(np.arange(4), size), 5, 0)
    tests = split_test("holdout", drawn, TESTS % 4, 0)
    kept = hold_out(tests.train, 0, 10, VALIDATION).train
    for part in (tests.train, kept):
        assert [len(part.part(client)) for client in range(5)] == part.sizes().tolist() == [part.samples] * 5
    assert tests.train.samples == samples - samples * 3 // 10


def test_the_seed_of_the_tests_draws_other_samples_of_the_same_classes():
    drawn = split(clients=20)
    one, other = (split_test("matched", drawn, TESTS, seed) for seed in (0, 1))
    assert any(one.part(client).tolist() != other.part(client).tolist() for client in range(20))
    for client in range(20):
        assert set(TESTS[one.part(client)].tolist()) == set(TESTS[other.part(client)].tolist())


def test_other_partitions_still_refuse_more_clients_than_samples():
    assert isinstance(split(clients=5000), DrawnSplit)
    assert not Split.on_demand
    assert DrawnSplit.on_demand
