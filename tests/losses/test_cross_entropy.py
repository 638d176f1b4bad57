import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.errors import Misconfigured
from fedblade.losses import BalancedCrossEntropy, CrossEntropy, balanced_cross_entropy, cross_entropy

LABELS = torch.tensor([0, 2, 2, 1, 0])
COUNTS = torch.tensor([3, 10, 1, 0])


def reference(logits, labels, counts, gamma, floor):
    """The weighted softmax written out."""
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        weights = [max(float(n), floor) ** gamma for n in counts]
        exponentials = [w * x.exp() for w, x in zip(weights, row, strict=True)]
        total = total - (exponentials[label] / sum(exponentials)).log()
    return total / len(labels)


@settings(max_examples=20, deadline=None)
@given(gamma=st.floats(0.1, 2), floor=st.sampled_from([0, 0.5, 1]), seed=st.integers(0, 99))
def test_value_and_gradient_match_the_weighted_softmax(gamma, floor, seed, laws, double):
    logits = double(5, 4, seed=seed)
    ours = laws.value_and_gradient(lambda x: balanced_cross_entropy(x, LABELS, COUNTS, gamma, floor), logits)
    slow = laws.value_and_gradient(lambda x: reference(x, LABELS, COUNTS, gamma, floor), logits)
    laws.same(ours, slow)


def test_the_comparison_rejects_a_wrong_sign(laws, double):
    logits = double(5, 4)
    with pytest.raises(AssertionError):
        laws.same(
            laws.value_and_gradient(lambda x: balanced_cross_entropy(x, LABELS, COUNTS, -1.0), logits),
            laws.value_and_gradient(lambda x: reference(x, LABELS, COUNTS, 1.0, 1), logits),
            1e-3,
        )


@pytest.mark.parametrize("floor", [0, 1])
def test_gradcheck(floor, double):
    def loss(x):
        return balanced_cross_entropy(x, LABELS, COUNTS, floor=floor)

    assert torch.autograd.gradcheck(loss, double(5, 4).requires_grad_())


def test_equal_counts_are_plain_cross_entropy(double):
    logits = double(5, 4)
    plain = torch.nn.functional.cross_entropy(logits, LABELS)
    torch.testing.assert_close(balanced_cross_entropy(logits, LABELS, torch.full((4,), 9)), plain)
    assert balanced_cross_entropy(logits, LABELS, COUNTS, gamma=0.0, floor=0) == plain
    assert cross_entropy(logits, LABELS) == plain


def test_shifting_logits_and_scaling_counts_change_nothing(double):
    logits, counts = double(5, 4), torch.tensor([3, 10, 1, 2])
    value = balanced_cross_entropy(logits, LABELS, counts)
    torch.testing.assert_close(balanced_cross_entropy(logits + 5, LABELS, counts), value)
    torch.testing.assert_close(balanced_cross_entropy(logits, LABELS, counts * 7), value)


def test_floors_differ_only_through_absent_classes(laws, double):
    logits = double(5, 4)
    without = laws.value_and_gradient(lambda x: balanced_cross_entropy(x, LABELS, COUNTS, floor=0), logits)
    three = laws.value_and_gradient(lambda x: balanced_cross_entropy(x[:, :3], LABELS, COUNTS[:3]), logits)
    laws.same(without, three)
    assert (without[1][:, 3] == 0).all()
    assert balanced_cross_entropy(logits, LABELS, COUNTS, floor=1) > without[0]


def test_uniform_logits_give_the_share_of_the_class():
    value = balanced_cross_entropy(torch.zeros(1, 3), torch.tensor([1]), torch.tensor([2, 5, 3]))
    assert value.item() == pytest.approx(-math.log(0.5))


def test_padding_and_vmap(laws, double):
    def loss(logits, labels, mask=None):
        return balanced_cross_entropy(logits, labels, COUNTS, floor=0, mask=mask)

    laws.padding(loss, double(5, 4), LABELS)
    laws.padding(cross_entropy, double(5, 4), LABELS)
    labels = torch.stack((LABELS, LABELS.flip(0), LABELS.roll(1)))
    counts = torch.stack((COUNTS, COUNTS + 1, 2 * COUNTS))
    laws.vmap(lambda x, y, n: balanced_cross_entropy(x, y, n, floor=0), double(3, 5, 4), labels, counts)
    nothing = loss(double(5, 4).requires_grad_(), LABELS, torch.zeros(5))
    assert nothing == 0
    assert nothing.requires_grad


def test_terms_read_the_step(step):
    view = step()
    plain, balanced = CrossEntropy(), BalancedCrossEntropy(gamma=0.5, floor=0)
    assert plain.supervised
    assert balanced.supervised
    assert plain.name == balanced.name == "supervised"
    assert plain(view).value == cross_entropy(view.logits, view.labels)
    expected = balanced_cross_entropy(view.logits, view.labels, view.counts, 0.5, 0)
    assert balanced(view).value == expected


def test_a_negative_floor_is_refused():
    with pytest.raises(Misconfigured, match="count floor -1"):
        BalancedCrossEntropy(floor=-1)
