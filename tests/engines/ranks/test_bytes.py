"""JSON and trees as bytes: what comes out is what went in, bit for bit, in memory of its own."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedblade.engines.ranks._bytes import as_bytes, decoded, encoded, from_bytes, leaves_of, num_bytes

CPU = torch.device("cpu")
KINDS = (torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.bfloat16)


@given(
    shapes=st.lists(st.lists(st.integers(0, 4), max_size=3), max_size=6),
    kinds=st.lists(st.sampled_from(KINDS), min_size=6, max_size=6),
)
def test_trees_survive(shapes, kinds):
    tree = {
        f"part/{i}.w": torch.randn(shape).to(kind) for i, (shape, kind) in enumerate(zip(shapes, kinds, strict=False))
    }
    leaves, data = decoded(encoded(leaves_of(tree))), as_bytes(tree, CPU)
    assert num_bytes(leaves) == len(data)
    found = from_bytes(data, leaves)
    assert list(found) == list(tree)
    for name, leaf in tree.items():
        assert (found[name].dtype, found[name].shape) == (leaf.dtype, leaf.shape)
        assert torch.equal(found[name], leaf)


def test_not_a_number_and_infinities_keep_their_bits():
    leaf = torch.tensor([float("nan"), float("inf"), -0.0, 5e-324], dtype=torch.float64)
    found = from_bytes(as_bytes({"x": leaf}, CPU), leaves_of({"x": leaf}))["x"]
    assert torch.equal(found.view(torch.int64), leaf.view(torch.int64))


def test_leaves_lie_where_kernels_expect_them():
    """A leaf that began in the middle of a buffer could be rounded differently."""
    tree = {"a": torch.ones(3, dtype=torch.uint8), "b": torch.ones(5, dtype=torch.float64)}
    found = from_bytes(as_bytes(tree, CPU), leaves_of(tree))
    assert found["b"].data_ptr() % 64 == 0
    assert found["a"].untyped_storage().data_ptr() != found["b"].untyped_storage().data_ptr()


def test_strided_leaves_are_sent_in_order():
    leaf = torch.arange(6.0).reshape(2, 3).T
    assert torch.equal(from_bytes(as_bytes({"x": leaf}, CPU), leaves_of({"x": leaf}))["x"], leaf)


@pytest.mark.parametrize("value", [{}, [1, 2.5, None, "ä"], {"a": {"b": [0.1, 1e-300]}}, 0.1 + 0.2])
def test_json_survives(value):
    assert decoded(encoded(value)) == value


def test_numbers_of_numpy_become_plain():
    assert decoded(encoded({"x": np.float64(0.1), "n": np.int64(3)})) == {"x": 0.1, "n": 3}
