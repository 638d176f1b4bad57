"""FedLC."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses as registry
from fedblade.losses import CalibratedCrossEntropy, calibrated_cross_entropy, cross_entropy

LABELS = torch.tensor([0, 2, 2, 1, 0])
COUNTS = torch.tensor([3, 16, 1, 0])
KINDS = ["standard", "exclude_true"]


def reference(logits, labels, counts, tau, denominator):
    """The ratio of exponentials written out, class by class."""
    total = 0.0
    for row, label in zip(logits, labels.tolist(), strict=True):
        held = [c for c, n in enumerate(counts.tolist()) if n > 0]
        shifted = {c: row[c] - tau / float(counts[c]) ** 0.25 for c in held}
        below = [c for c in held if denominator == "standard" or c != label]
        total = total - (shifted[label].exp() / sum(shifted[c].exp() for c in below)).log()
    return total / len(labels)


@settings(max_examples=20, deadline=None)
@given(tau=st.floats(0, 5), denominator=st.sampled_from(KINDS), seed=st.integers(0, 99))
def test_value_and_gradient_match_the_ratio(tau, denominator, seed, laws, double):
    logits = double(5, 4, seed=seed)
    ours = laws.value_and_gradient(
        lambda x: calibrated_cross_entropy(x, LABELS, COUNTS, tau, denominator=denominator), logits
    )
    laws.same(ours, laws.value_and_gradient(lambda x: reference(x, LABELS, COUNTS, tau, denominator), logits))
    assert (ours[1][:, 3] == 0).all()


def test_the_comparison_rejects_the_other_denominator(laws, double):
    logits = double(5, 4)
    with pytest.raises(AssertionError):
        laws.same(
            laws.value_and_gradient(lambda x: calibrated_cross_entropy(x, LABELS, COUNTS), logits),
            laws.value_and_gradient(lambda x: reference(x, LABELS, COUNTS, 1.0, "exclude_true"), logits),
            1e-3,
        )


@pytest.mark.parametrize("denominator", KINDS)
def test_gradcheck(denominator, double):
    def loss(x):
        return calibrated_cross_entropy(x, LABELS, COUNTS, 2.0, denominator=denominator)

    assert torch.autograd.gradcheck(loss, double(5, 4).requires_grad_())


def test_equal_counts_are_cross_entropy_over_the_classes_held(laws, double):
    logits = double(5, 4)
    equal = torch.tensor([7, 7, 7, 0])
    ours = laws.value_and_gradient(lambda x: calibrated_cross_entropy(x, LABELS, equal, 10.0), logits)
    laws.same(ours, laws.value_and_gradient(lambda x: cross_entropy(x[:, :3], LABELS), logits))


def test_no_margin_and_every_class_is_cross_entropy_bit_for_bit(double):
    logits = double(5, 4)
    value = calibrated_cross_entropy(logits, LABELS, torch.tensor([3, 16, 1, 2]), 0.0)
    assert value == cross_entropy(logits, LABELS)


def test_the_rarer_class_needs_the_larger_logit():
    value = calibrated_cross_entropy(torch.zeros(1, 2), torch.tensor([1]), torch.tensor([16, 1]), 2.0)
    assert value.item() == pytest.approx(math.log(1 + math.exp(2 - 1)))


def test_the_true_class_does_not_bound_the_published_form(double):
    logits = double(1, 4)
    logits[0, 0] = 50
    assert calibrated_cross_entropy(logits, LABELS[:1], COUNTS, denominator="exclude_true") < -40
    assert calibrated_cross_entropy(logits, LABELS[:1], COUNTS) >= 0


@pytest.mark.parametrize("denominator", KINDS)
def test_a_client_of_one_class_learns_nothing(denominator, laws, double):
    labels, counts = torch.ones(5, dtype=torch.int64), torch.tensor([0, 9, 0, 0])
    value, gradient = laws.value_and_gradient(
        lambda x: calibrated_cross_entropy(x, labels, counts, 3.0, denominator=denominator), double(5, 4)
    )
    assert value == 0
    assert (gradient == 0).all()


def test_a_sample_of_a_removed_class_costs_infinity():
    value = calibrated_cross_entropy(torch.zeros(1, 4), torch.tensor([3]), COUNTS)
    assert value == math.inf


@pytest.mark.parametrize("denominator", KINDS)
def test_padding_and_vmap(denominator, laws, double):
    def loss(logits, labels, counts=COUNTS, mask=None):
        return calibrated_cross_entropy(logits, labels, counts, 2.0, denominator=denominator, mask=mask)

    laws.padding(lambda x, y, mask: loss(x, y, mask=mask), double(5, 4), LABELS)
    labels = torch.stack((LABELS, LABELS.flip(0), torch.ones(5, dtype=torch.int64)))
    counts = torch.stack((COUNTS, COUNTS + 1, torch.tensor([0, 4, 0, 0])))
    laws.vmap(loss, double(3, 5, 4), labels, counts)
    nothing = loss(double(5, 4).requires_grad_(), LABELS, mask=torch.zeros(5))
    assert nothing == 0
    assert nothing.requires_grad


def test_the_dtype_of_the_logits_stays_and_large_counts_are_safe():
    counts = torch.tensor([3, 10**6, 1, 0])
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        value = calibrated_cross_entropy(torch.zeros(5, 4, dtype=dtype), LABELS, counts)
        assert value.dtype == dtype
        exact = calibrated_cross_entropy(torch.zeros(5, 4, dtype=torch.float64), LABELS, counts)
        assert value.item() == pytest.approx(exact.item(), rel=1e-2)


def test_the_term_reads_the_step(step):
    view = step()
    term = registry.get("calibrated_cross_entropy").make(tau_lc=0.5, denominator="exclude_true")
    assert term == CalibratedCrossEntropy(tau_lc=0.5, denominator="exclude_true")
    assert (term.name, term.supervised) == ("supervised", True)
    expected = calibrated_cross_entropy(view.logits, view.labels, view.counts, 0.5, denominator="exclude_true")
    assert term(view).value == expected
    assert CalibratedCrossEntropy()(view).value == calibrated_cross_entropy(view.logits, view.labels, view.counts)


def test_bad_input_is_refused(double):
    with pytest.raises(Misconfigured, match="Did you mean 'exclude_true'"):
        CalibratedCrossEntropy(denominator="exclude_tru")
    with pytest.raises(Misconfigured, match="unknown denominator"):
        calibrated_cross_entropy(double(5, 4), LABELS, COUNTS, denominator="all")
    with pytest.raises(Misconfigured, match=r"counts of shape \(3,\) given; \[4\] expected"):
        calibrated_cross_entropy(double(5, 4), LABELS, COUNTS[:3])
    with pytest.raises(Misconfigured, match=r"mask of shape \(2,\) given"):
        calibrated_cross_entropy(double(5, 4), LABELS, COUNTS, mask=torch.ones(2))
