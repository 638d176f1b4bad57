import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses as registry
from fedblade.core.terms import FeatureTerm, Term
from fedblade.losses import PredictionVariance, Uniformity, prediction_variance, uniformity


def reference_variance(logits):
    """The sample deviation of each probability, class by class."""
    exponentials = logits.exp()
    p = exponentials / exponentials.sum(1, keepdim=True)
    rows, classes = p.shape
    total = logits.sum() * 0
    for c in range(classes):
        mean = sum(p[i, c] for i in range(rows)) / rows
        deviation = (sum((p[i, c] - mean) ** 2 for i in range(rows)) / (rows - 1)).sqrt()
        total = total + max(1 / math.sqrt(classes) - deviation, 0 * deviation)
    return total / classes


def reference_uniformity(z):
    """Differences of all pairs, and the median of the list of their squares, which the gradient reaches too."""
    squares = [(z[i] - z[j]).square().sum() for i in range(len(z)) for j in range(i + 1, len(z))]
    sigma = torch.stack([s for s in squares if s > 0]).median()
    return sum((-s / sigma).exp() for s in squares) / len(squares)


@settings(max_examples=20, deadline=None)
@given(batch=st.integers(2, 6), classes=st.integers(2, 5), size=st.sampled_from([0.1, 1, 9]), seed=st.integers(0, 99))
def test_variance_matches_the_loop(batch, classes, size, seed, laws, double):
    logits = size * double(batch, classes, seed=seed)
    ours = laws.value_and_gradient(prediction_variance, logits)
    laws.same(ours, laws.value_and_gradient(reference_variance, logits))


@settings(max_examples=20, deadline=None)
@given(batch=st.integers(2, 7), dim=st.integers(1, 6), size=st.sampled_from([1e-3, 1, 1e3]), seed=st.integers(0, 99))
def test_uniformity_matches_the_loop(batch, dim, size, seed, laws, double):
    z = size * double(batch, dim, seed=seed)
    value, gradient = laws.value_and_gradient(uniformity, z)
    other, slope = laws.value_and_gradient(reference_uniformity, z)
    laws.same((value, size * gradient), (other, size * slope))


def test_the_gradient_passes_through_the_median(laws, double):
    """A constant median would leave the features a slope of their scale; exact, the term does not see their scale."""
    z = double(12, 6)
    _, gradient = laws.value_and_gradient(uniformity, z)
    squares = torch.pdist(z).square()

    def with_a_constant(z):
        return (-torch.pdist(z).square() / squares.median()).exp().mean()

    _, other = laws.value_and_gradient(with_a_constant, z)
    assert abs((gradient * z).sum()) < 1e-12
    assert abs((other * z).sum()) > 0.1
    tied = torch.tensor([[0.0], [0.0], [1.0]], dtype=torch.float64)
    laws.same(laws.value_and_gradient(uniformity, tied), laws.value_and_gradient(reference_uniformity, tied))


def test_comparisons_reject_another_deviation_and_another_width(laws, double):
    logits, z = double(5, 4), double(5, 4)
    biased = (0.5 - logits.softmax(1).std(0, correction=0)).relu().mean()
    with pytest.raises(AssertionError):
        laws.same((biased,), (reference_variance(logits),), 1e-3)
    with pytest.raises(AssertionError):
        laws.same(((-torch.pdist(z).square() / torch.pdist(z).square().mean()).exp().mean(),), (uniformity(z),), 1e-3)


def test_gradcheck_of_the_variance(double):
    assert torch.autograd.gradcheck(prediction_variance, double(5, 4).requires_grad_())


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_one_sure_prediction_of_each_class_is_diverse_enough(classes):
    logits = 1000 * torch.eye(classes, dtype=torch.float64)
    assert prediction_variance(logits).item() == pytest.approx(0, abs=1e-15)
    assert prediction_variance(logits[:, [0] * classes]).item() == pytest.approx(classes**-0.5)


def test_diverse_predictions_cost_nothing_and_equal_ones_have_no_gradient(laws):
    wide = torch.tensor([[9.0, -9.0], [-9.0, 9.0]], dtype=torch.float64)
    for logits, cost in ((3 * wide, 0.0), (wide[[0, 0]], 2**-0.5)):
        value, gradient = laws.value_and_gradient(prediction_variance, logits)
        assert value.item() == pytest.approx(cost, abs=1e-15)
        assert torch.isfinite(gradient).all()
    assert (gradient == 0).all()


def test_two_samples_are_one_pair_at_the_median(double):
    assert uniformity(double(2, 4)).item() == pytest.approx(math.exp(-1))


def test_coinciding_samples_are_left_out_of_the_median_but_count_as_pairs(laws):
    z = torch.tensor([[0.0], [0.0], [1.0], [3.0]], dtype=torch.float64)
    squares = [0, 1, 9, 1, 9, 4]  # not zero and sorted: 1 1 4 9 9
    expected = sum(math.exp(-s / 4) for s in squares) / 6
    value, gradient = laws.value_and_gradient(uniformity, z)
    assert value.item() == pytest.approx(expected)
    laws.same((value, gradient), laws.value_and_gradient(reference_uniformity, z))
    even = torch.tensor([[0.0], [0.0], [1.0]], dtype=torch.float64)
    assert uniformity(even).item() == pytest.approx((1 + 2 * math.exp(-1)) / 3)
    spaced = torch.tensor([[0.0], [0.0], [0.0], [1.0], [5.0]], dtype=torch.float64)
    laws.same((uniformity(spaced),), (reference_uniformity(spaced),))


def test_of_two_middle_distances_the_lower_one_is_the_width():
    z = torch.tensor([[0.0], [1.0], [3.0], [7.0]], dtype=torch.float64)
    squares = [1, 4, 9, 16, 36, 49]
    assert uniformity(z).item() == pytest.approx(sum(math.exp(-s / 9) for s in squares) / 6)


@pytest.mark.parametrize("loss", [prediction_variance, uniformity])
def test_single_samples_cost_nothing(loss, laws, double):
    value, gradient = laws.value_and_gradient(loss, double(1, 4))
    assert value == 0
    assert (gradient == 0).all()
    one = torch.tensor([0, 1.0, 0])
    value, gradient = laws.value_and_gradient(lambda x: loss(x, mask=one), double(3, 4))
    assert value == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("batch", "dim"), [(2, 3), (7, 64), (33, 513)])
def test_equal_features_cost_nothing_whatever_the_rounding(batch, dim, dtype, laws):
    row = torch.rand(dim, generator=torch.Generator().manual_seed(0), dtype=dtype) + 100
    for scale in (0.0, 1e-3, 1.0, 1e3):
        value, gradient = laws.value_and_gradient(uniformity, (scale * row).repeat(batch, 1))
        assert value == 0
        assert (gradient == 0).all()


def test_a_collapsed_batch_of_single_precision_keeps_its_distances(laws):
    generator = torch.Generator().manual_seed(0)
    z = 10 + 1e-4 * torch.randn(20, 64, generator=generator)
    for part, exact in zip(
        laws.value_and_gradient(uniformity, z), laws.value_and_gradient(reference_uniformity, z.double()), strict=True
    ):
        assert part.dtype == torch.float32
        assert (part - exact).norm() <= 1e-5 * exact.norm()


def test_uniformity_sees_no_common_shift_rotation_or_scale(double):
    z, turn = double(6, 4), torch.linalg.qr(double(4, 4, seed=1)).Q
    for moved in (z + 1e3, z @ turn, 1e-4 * z):
        torch.testing.assert_close(uniformity(moved), uniformity(z))


def test_padding_and_vmap(laws, double):
    masks = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 0, 1, 0, 0.0]])
    for loss in (prediction_variance, uniformity):
        laws.padding(loss, double(5, 4))
        laws.padding(loss, double(1, 4))
        laws.vmap(loss, double(3, 5, 4))
        laws.vmap(lambda x, mask, loss=loss: loss(x, mask=mask), double(3, 5, 4), masks)
        nothing = loss(double(5, 4).requires_grad_(), mask=torch.zeros(5))
        assert nothing == 0
        assert nothing.requires_grad


def test_terms_are_registered_and_read_the_step(step, double):
    view = replace(step(), mask=torch.tensor([1, 1, 0, 1, 1, 1.0]))
    assert registry.get("prediction_variance").make is PredictionVariance
    assert registry.get("uniformity").make is Uniformity
    assert (PredictionVariance.name, Uniformity.name) == ("variance", "uniformity")
    assert issubclass(PredictionVariance, Term)
    assert issubclass(Uniformity, FeatureTerm)
    assert PredictionVariance()(view).value == prediction_variance(view.logits, mask=view.mask)
    assert Uniformity()(view.features, view.mask).value == uniformity(view.features, mask=view.mask)
    assert Uniformity()(view.features, None).value == uniformity(view.features)


@pytest.mark.parametrize(("loss", "name"), [(prediction_variance, "logits"), (uniformity, "features")])
def test_wrong_tensors_are_refused(loss, name):
    with pytest.raises(Misconfigured, match=rf"{name} of shape \(5,\) given"):
        loss(torch.zeros(5))
    with pytest.raises(Misconfigured, match=f"{name} of dtype torch.int64 given"):
        loss(torch.zeros(5, 4, dtype=torch.int64))
    with pytest.raises(Misconfigured, match=r"mask of shape \(3,\) given; \[5\] expected"):
        loss(torch.zeros(5, 4), mask=torch.ones(3))
