"""FedRS."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses as registry
from fedblade.losses import RestrictedCrossEntropy, cross_entropy, restricted_cross_entropy

LABELS = torch.tensor([0, 2, 2, 1, 0])
COUNTS = torch.tensor([3, 16, 1, 0])


def reference(logits, labels, counts, alpha):
    total = 0.0
    for row, label in zip(logits, labels.tolist(), strict=True):
        powers = [((1 if n > 0 else alpha) * x).exp() for n, x in zip(counts.tolist(), row, strict=True)]
        total = total - (powers[label] / sum(powers)).log()
    return total / len(labels)


@settings(max_examples=20, deadline=None)
@given(alpha=st.floats(0, 1), seed=st.integers(0, 99))
def test_value_and_gradient_match_the_scaled_softmax(alpha, seed, laws, double):
    logits = double(5, 4, seed=seed)
    ours = laws.value_and_gradient(lambda x: restricted_cross_entropy(x, LABELS, COUNTS, alpha), logits)
    laws.same(ours, laws.value_and_gradient(lambda x: reference(x, LABELS, COUNTS, alpha), logits))


def test_the_comparison_rejects_another_factor(laws, double):
    logits = double(5, 4)
    with pytest.raises(AssertionError):
        laws.same(
            laws.value_and_gradient(lambda x: restricted_cross_entropy(x, LABELS, COUNTS, 0.5), logits),
            laws.value_and_gradient(lambda x: reference(x, LABELS, COUNTS, 0.6), logits),
            1e-3,
        )


def test_gradcheck(double):
    assert torch.autograd.gradcheck(
        lambda x: restricted_cross_entropy(x, LABELS, COUNTS), double(5, 4).requires_grad_()
    )


@pytest.mark.parametrize(
    ("counts", "alpha"), [(COUNTS, 1.0), (torch.tensor([3, 16, 1, 2]), 0.5), (torch.zeros(4), 1.0)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_restriction_is_cross_entropy_bit_for_bit(counts, alpha, dtype, laws, double):
    logits = double(5, 4).to(dtype)
    value, gradient = laws.value_and_gradient(lambda x: restricted_cross_entropy(x, LABELS, counts, alpha), logits)
    plain_value, plain_gradient = laws.value_and_gradient(lambda x: cross_entropy(x, LABELS), logits)
    assert value.dtype == dtype
    assert torch.equal(value, plain_value)
    assert torch.equal(gradient, plain_gradient)


def test_missing_classes_are_pushed_by_alpha_times_their_probability(laws, double):
    logits, alpha = double(5, 4), 0.25
    _, gradient = laws.value_and_gradient(lambda x: restricted_cross_entropy(x, LABELS, COUNTS, alpha), logits)
    probabilities = (logits * torch.tensor([1, 1, 1, alpha])).softmax(1)
    torch.testing.assert_close(gradient[:, 3], alpha * probabilities[:, 3] / 5)


def test_a_client_of_one_class_still_has_a_loss(laws, double):
    labels, counts = torch.ones(5, dtype=torch.int64), torch.tensor([0, 9, 0, 0])
    value, gradient = laws.value_and_gradient(lambda x: restricted_cross_entropy(x, labels, counts), double(5, 4))
    assert value > 0
    assert (gradient != 0).all()


def test_padding_and_vmap(laws, double):
    laws.padding(lambda x, y, mask: restricted_cross_entropy(x, y, COUNTS, mask=mask), double(5, 4), LABELS)
    labels = torch.stack((LABELS, LABELS.flip(0), LABELS.roll(1)))
    counts = torch.stack((COUNTS, COUNTS + 1, torch.tensor([0, 4, 0, 0])))
    laws.vmap(restricted_cross_entropy, double(3, 5, 4), labels, counts)
    laws.vmap(partial(restricted_cross_entropy, weights="authors"), double(3, 5, 4), labels, counts)
    nothing = restricted_cross_entropy(double(5, 4).requires_grad_(), LABELS, COUNTS, mask=torch.zeros(5))
    assert nothing == 0
    assert nothing.requires_grad


def test_weights_of_the_authors_match_their_formula(laws, double):
    def by_hand(x):
        factors = [0.2 + 0.8 * n / max(COUNTS.tolist()) for n in COUNTS.tolist()]
        scaled = [[f * each for f, each in zip(factors, row, strict=True)] for row in x]
        parts = [torch.logsumexp(torch.stack(row), 0) - row[y] for row, y in zip(scaled, LABELS.tolist(), strict=True)]
        return sum(parts) / len(parts)

    def ours(x, counts=COUNTS, alpha=0.2):
        return restricted_cross_entropy(x, LABELS, counts, alpha, weights="authors")

    logits = double(5, 4)
    laws.same(laws.value_and_gradient(ours, logits), laws.value_and_gradient(by_hand, logits))
    plain = laws.value_and_gradient(lambda x: restricted_cross_entropy(x, LABELS, COUNTS, 1.0), logits)
    for counts, alpha in ((COUNTS, 1.0), (torch.full_like(COUNTS, 7), 0.2)):
        found = laws.value_and_gradient(partial(ours, counts=counts, alpha=alpha), logits)
        assert all(torch.equal(one, other) for one, other in zip(found, plain, strict=True))


def test_the_term_reads_the_step(step):
    view = step()
    term = registry.get("restricted_cross_entropy").make(alpha_rs=0.3)
    assert term == RestrictedCrossEntropy(alpha_rs=0.3)
    assert (term.name, term.supervised) == ("supervised", True)
    assert term(view).value == restricted_cross_entropy(view.logits, view.labels, view.counts, 0.3)
    assert RestrictedCrossEntropy()(view).value == restricted_cross_entropy(view.logits, view.labels, view.counts, 0.5)


def test_bad_input_is_refused(double):
    with pytest.raises(Misconfigured, match=r"unknown weights 'author'.*authors"):
        RestrictedCrossEntropy(weights="author")
    with pytest.raises(Misconfigured, match=r"counts of shape \(3,\) given; \[4\] expected"):
        restricted_cross_entropy(double(5, 4), LABELS, COUNTS[:3])
    with pytest.raises(Misconfigured, match=r"labels of shape \(2,\) given"):
        restricted_cross_entropy(double(5, 4), LABELS[:2], COUNTS)
