import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.streams import Stream, Streams

KEYS = st.tuples(
    st.integers(0, 2**40), st.sampled_from(["client", "proto", "eval"]), st.lists(st.integers(0, 2**31), max_size=3)
)


def draws(key):
    seed, name, rest = key
    return Streams(seed).numpy(name, *rest).random(4)


@settings(max_examples=50, deadline=None)
@given(KEYS)
def test_same_key_same_draws(key):
    assert np.array_equal(draws(key), draws(key))


@settings(max_examples=100, deadline=None)
@given(KEYS, KEYS)
def test_different_keys_share_no_draw(a, b):
    if (a[0], a[1], tuple(a[2])) != (b[0], b[1], tuple(b[2])):
        assert not np.intersect1d(draws(a), draws(b)).size


def test_a_key_is_not_the_concatenation_of_its_parts():
    streams = Streams(0)
    values = [streams.integer("x", *key) for key in [(), (0,), (0, 0), (1,), (1, 0), (0, 1), (10,), (1, 0, 0)]]
    assert len(set(values)) == len(values)


def test_drawing_from_one_stream_does_not_move_another():
    streams = Streams(5)
    expected = streams.numpy("client", 1, 2, 0).permutation(10)
    other = streams.numpy("client", 1, 3, 0)
    other.random(1000)
    streams.torch("init", 0)
    assert np.array_equal(streams.numpy("client", 1, 2, 0).permutation(10), expected)


def test_neighbouring_keys_are_uncorrelated():
    rows = np.stack([Streams(0).numpy("client", 0, k).standard_normal(2000) for k in range(8)])
    correlation = np.corrcoef(rows) - np.eye(8)
    assert np.abs(correlation).max() < 0.1


@pytest.mark.parametrize("name", ["client", "init"])
def test_torch_generator_follows_the_key(name):
    def numbers(seed, *key):
        return torch.rand(3, generator=Streams(seed).torch(name, *key))

    assert torch.equal(numbers(1, 2), numbers(1, 2))
    assert not torch.equal(numbers(1, 2), numbers(1, 3))
    assert not torch.equal(numbers(1, 2), numbers(2, 2))


def test_global_generators_are_neither_read_nor_moved():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = Streams(1).integer("etf")
    Streams(1).torch("etf").initial_seed()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert Streams(1).integer("etf") == first


def test_integers_fit_a_torch_seed():
    assert all(0 <= Streams(s).integer("init", 0) < 2**63 for s in range(200))


def test_names_of_streams_are_part_of_every_result():
    """Another value of a name would change the numbers of all runs."""
    assert {name.name: name.value for name in Stream} == {
        "PARTITION": "partition",
        "HARDNESS": "hardness",
        "EVALUATION_ORDER": "eval",
        "CLIENT_TESTS": "client_tests",
        "MEASURED_CLIENTS": "measured",
        "INIT": "init",
        "ETF": "etf",
        "ORTHONORMAL": "ortho",
        "PROTOTYPES": "prototypes",
        "GENERATOR": "generator",
        "SAMPLING": "sampling",
        "UNSEEN": "unseen",
        "DROPOUT": "dropout",
        "PARTIAL_WORK": "partial_work",
        "BATCHES": "client",
        "AUGMENTATION": "augment",
        "METHOD": "method",
        "LAYERS": "layers",
        "FIXED_ORDER": "pass",
        "PROTOTYPE_AUGMENTATION": "proto",
        "SERVER": "server",
    }
    assert Streams(3).integer(Stream.BATCHES, 1) == Streams(3).integer("client", 1)
