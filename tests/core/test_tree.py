import pytest
import torch

from fedblade.core.tree import (
    tree_bytes,
    tree_clone,
    tree_digest,
    tree_dot,
    tree_is_finite,
    tree_map,
    tree_norm,
    tree_select,
    tree_zeros,
)


def tree():
    return {"a.weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "b": torch.tensor(5.0)}


def test_map_works_leaf_by_leaf_whatever_the_order_of_names():
    first = tree()
    second = dict(reversed(tree().items()))
    added = tree_map(torch.add, first, second)
    assert list(added) == ["a.weight", "b"]
    assert torch.equal(added["a.weight"], torch.tensor([[2.0, 4.0], [6.0, 8.0]]))
    assert added["b"] == 10


@pytest.mark.parametrize("other", [{"b": torch.tensor(1.0)}, {**tree(), "c": torch.tensor(1.0)}])
def test_map_refuses_other_names(other):
    with pytest.raises(KeyError, match=r"a\.weight|c"):
        tree_map(torch.add, tree(), other)


def test_zeros_keep_shape_and_type():
    zeros = tree_zeros({"a": torch.ones(2, 3, dtype=torch.float64), "n": torch.ones(2, dtype=torch.int64)})
    assert zeros["a"].shape == (2, 3)
    assert zeros["a"].dtype == torch.float64
    assert zeros["n"].dtype == torch.int64
    assert not zeros["a"].any()


def test_clone_is_detached_and_owns_its_memory():
    original = {"a": torch.ones(2, requires_grad=True)}
    copy = tree_clone(original)
    assert not copy["a"].requires_grad
    copy["a"].fill_(7)
    assert torch.equal(original["a"].detach(), torch.ones(2))


def test_select_keeps_the_order_of_the_tree():
    leaves = {"z": torch.tensor(1), "a": torch.tensor(2), "m": torch.tensor(3)}
    assert list(tree_select(leaves, ["a", "z", "absent"])) == ["z", "a"]


def test_dot_and_norm_add_in_float64():
    large = {"a": torch.full((3,), 1e20, dtype=torch.float32)}
    assert tree_dot(large, large).dtype == torch.float64
    assert tree_norm(large).item() == pytest.approx(3**0.5 * float(torch.tensor(1e20)))
    assert tree_dot(tree(), tree()).item() == 1 + 4 + 9 + 16 + 25
    assert tree_norm({}).item() == 0


def test_bytes_count_every_leaf_at_its_own_width():
    assert tree_bytes({"a": torch.ones(3), "b": torch.ones(2, dtype=torch.float64), "c": torch.ones(5).bool()}) == 33


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_finite_looks_at_every_leaf(bad):
    assert tree_is_finite({**tree(), "n": torch.tensor([1, 2])})
    assert not tree_is_finite({**tree(), "last": torch.tensor([0.0, bad])})


def test_digest_is_independent_of_order_and_memory_layout():
    matrix = torch.arange(6.0).reshape(2, 3)
    strided = matrix.T.contiguous().T
    assert tree_digest({"a": matrix, "b": torch.ones(1)}) == tree_digest({"b": torch.ones(1), "a": strided})


@pytest.mark.parametrize(
    "other",
    [
        {"a": torch.zeros(4)},
        {"b": torch.zeros(2, 2)},
        {"a": torch.zeros(2, 2, dtype=torch.float64)},
        {"a": torch.tensor([[0.0, 0.0], [0.0, -0.0]])},
        {"a": torch.tensor([[0.0, 0.0], [0.0, 1e-45]])},
    ],
)
def test_digest_sees_shape_name_type_and_the_last_bit(other):
    assert tree_digest({"a": torch.zeros(2, 2)}) != tree_digest(other)


def test_digest_of_a_scalar_leaf():
    assert tree_digest({"s": torch.tensor(1.0)}) != tree_digest({"s": torch.tensor(2.0)})
