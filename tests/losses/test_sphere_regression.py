"""SphereFed's squared loss."""

import pytest
import torch

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses as registry
from fedblade.heads import normalise
from fedblade.losses import SphereRegression, sphere_regression

LABELS = torch.tensor([0, 3, 3, 1, 2])


def reference(logits, labels):
    total = 0.0
    for row, label in zip(logits, labels.tolist(), strict=True):
        for c, cosine in enumerate(row):
            total = total + (cosine - (1 if c == label else 0)) ** 2
    return total / logits.numel()


@pytest.fixture
def vectors(double):
    """Four orthonormal class vectors in six dimensions, as rows."""
    return torch.linalg.qr(double(6, 4, seed=9)).Q.T


@pytest.mark.parametrize("shape", [(5, 4), (1, 4)])
def test_value_and_gradient_match_the_loop(shape, laws, double):
    logits, labels = double(*shape), LABELS[: shape[0]]
    ours = laws.value_and_gradient(lambda x: sphere_regression(x, labels), logits)
    laws.same(ours, laws.value_and_gradient(lambda x: reference(x, labels), logits))


def test_the_comparison_rejects_a_sum_over_classes(laws, double):
    logits = double(5, 4)
    with pytest.raises(AssertionError):
        laws.same(
            laws.value_and_gradient(lambda x: 4 * sphere_regression(x, LABELS), logits),
            laws.value_and_gradient(lambda x: reference(x, LABELS), logits),
            1e-3,
        )


def test_scaling_the_features_changes_nothing_and_turns_the_gradient_across(laws, double, vectors):
    def loss(z):
        return sphere_regression(normalise(z) @ vectors.T, LABELS)

    z, factors = double(5, 6), double(5, 1, seed=1).exp()
    value, gradient = laws.value_and_gradient(loss, z)
    torch.testing.assert_close(loss(factors * z), value)
    torch.testing.assert_close((gradient * z).sum(1), torch.zeros(5).double(), atol=1e-15, rtol=0)
    assert torch.autograd.gradcheck(loss, z.requires_grad_())


def test_perfect_alignment_costs_nothing(laws, vectors):
    z = 3 * vectors[LABELS]
    value, gradient = laws.value_and_gradient(lambda x: sphere_regression(normalise(x) @ vectors.T, LABELS), z)
    assert value.item() == pytest.approx(0, abs=1e-30)
    assert gradient.abs().max() < 1e-15


def test_a_zero_feature_misses_its_class_only(laws, vectors):
    value, gradient = laws.value_and_gradient(
        lambda x: sphere_regression(normalise(x) @ vectors.T, LABELS), torch.zeros(5, 6).double()
    )
    assert value.item() == pytest.approx(1 / 4)
    assert (gradient == 0).all()


def test_padding_and_vmap(laws, double):
    laws.padding(sphere_regression, double(5, 4), LABELS)
    labels = torch.stack((LABELS, LABELS.flip(0), LABELS.roll(1)))
    laws.vmap(sphere_regression, double(3, 5, 4), labels)
    nothing = sphere_regression(double(5, 4).requires_grad_(), LABELS, mask=torch.zeros(5))
    assert nothing == 0
    assert nothing.requires_grad


def test_the_term_reads_the_step(step):
    view = step()
    term = registry.get("sphere_regression").make()
    assert term == SphereRegression()
    assert (term.name, term.supervised) == ("supervised", True)
    assert term(view).value == sphere_regression(view.logits, view.labels)


def test_bad_input_is_refused(double):
    with pytest.raises(Misconfigured, match=r"logits of shape \(4,\) given; \[batch, classes\] expected"):
        sphere_regression(double(4), LABELS)
    with pytest.raises(Misconfigured, match=r"mask of shape \(2,\) given"):
        sphere_regression(double(5, 4), LABELS, mask=torch.ones(2))
