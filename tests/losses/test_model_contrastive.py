import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses as registry
from fedblade.core.views import HeadOutput, Teacher, TeacherOutput
from fedblade.losses import ModelContrastive, model_contrastive

PREVIOUS = Teacher(of="previous")


def reference(r, near, left, tau):
    """The ratio of exponentials, written out."""
    terms = []
    for a, b, c in zip(r, near, left, strict=True):
        pull = (a @ b / (a.norm() * b.norm()) / tau).exp()
        push = (a @ c / (a.norm() * c.norm()) / tau).exp()
        terms.append(-(pull / (pull + push)).log())
    return sum(terms) / len(terms)


@settings(max_examples=20, deadline=None)
@given(tau=st.floats(0.03, 2), seed=st.integers(0, 99))
def test_value_and_gradient_match_the_ratio(tau, seed, laws, double):
    r, near, left = (double(5, 6, seed=seed + k) for k in range(3))
    ours = laws.value_and_gradient(lambda x: model_contrastive(x, near, left, tau), r)
    laws.same(ours, laws.value_and_gradient(lambda x: reference(x, near, left, tau), r))


def test_the_comparison_rejects_exchanged_models(laws, double):
    r, near, left = (double(5, 6, seed=k) for k in range(3))
    with pytest.raises(AssertionError):
        laws.same((model_contrastive(r, left, near),), (reference(r, near, left, 0.5),), 1e-3)


def test_gradcheck(double):
    near, left = double(5, 6, seed=1), double(5, 6, seed=2)
    assert torch.autograd.gradcheck(lambda x: model_contrastive(x, near, left), double(5, 6).requires_grad_())


def test_a_previous_model_equal_to_the_global_one_does_not_pull(laws, double):
    near = double(5, 6, seed=1)
    value, gradient = laws.value_and_gradient(lambda x: model_contrastive(x, near, near.clone()), double(5, 6))
    assert value.item() == pytest.approx(math.log(2))
    assert (gradient == 0).all()


def test_extremes_are_finite_at_a_low_temperature(laws):
    r = torch.eye(3, dtype=torch.float64)
    value, gradient = laws.value_and_gradient(lambda x: model_contrastive(x, -r, r, 1e-4), r)
    assert value.item() == pytest.approx(2e4)
    assert torch.isfinite(gradient).all()
    value, _ = laws.value_and_gradient(lambda x: model_contrastive(x, r, -r, 1e-4), r)
    assert value.item() == pytest.approx(0, abs=1e-12)


def test_only_directions_matter_and_zero_vectors_have_none(laws, double):
    r, near, left = (double(5, 6, seed=k) for k in range(3))
    torch.testing.assert_close(model_contrastive(3 * r, 7 * near, 0.1 * left), model_contrastive(r, near, left))
    r[1] = 0
    value, gradient = laws.value_and_gradient(lambda x: model_contrastive(x, near, left), r)
    keep = [0, 2, 3, 4]
    expected = (4 * model_contrastive(r[keep], near[keep], left[keep]) + math.log(2)) / 5
    torch.testing.assert_close(value, expected)
    assert torch.isfinite(gradient).all()
    assert (gradient[1] == 0).all()


def test_both_models_are_constants(double):
    near, left = (double(5, 6, seed=k).requires_grad_() for k in (1, 2))
    assert not model_contrastive(double(5, 6), near, left).requires_grad


def test_padding_and_vmap(laws, double):
    laws.padding(model_contrastive, *(double(5, 6, seed=k) for k in range(3)))
    laws.vmap(model_contrastive, *(double(3, 5, 6, seed=k) for k in range(3)))


def _step(step, double, left):
    """A step in which both teachers have spoken, with a graph from the features."""
    view = step(features=double(6, 5).requires_grad_())
    silent = torch.full((6, 3), torch.nan, dtype=torch.float64)
    spoken = {
        teacher: TeacherOutput(features, HeadOutput(silent, features), silent)
        for teacher, features in ((Teacher(), double(6, 5, seed=1)), (PREVIOUS, left))
    }
    return replace(view, teachers=spoken)


def test_the_term_contrasts_its_two_teachers(step, double):
    near, left = double(6, 5, seed=1), double(6, 5, seed=2)
    view = _step(step, double, left)
    term = ModelContrastive(tau=0.3)
    assert term.teachers == (Teacher(), PREVIOUS)
    assert registry.get("model_contrastive").make is ModelContrastive
    assert term.name == "moon"
    assert term(view).value == model_contrastive(view.features, near, left, 0.3)
    mask = torch.tensor([1, 0, 1, 1, 1, 0.0])
    masked = term(replace(view, mask=mask)).value
    assert masked == model_contrastive(view.features, near, left, 0.3, mask=mask)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"features": torch.zeros(5)}, r"features of shape \(5,\) given"),
        ({"global_features": torch.zeros(5, 3)}, r"global_features of shape \(5, 3\) given; \[5, 4\] expected"),
        ({"previous_features": torch.zeros(1, 4)}, r"previous_features of shape \(1, 4\) given; \[5, 4\] expected"),
        ({"mask": torch.ones(3)}, r"mask of shape \(3,\) given"),
        ({"tau": 0}, "tau=0 must be positive"),
    ],
)
def test_wrong_input_is_refused(wrong, message):
    good = {name: torch.ones(5, 4) for name in ("features", "global_features", "previous_features")}
    assert torch.isfinite(model_contrastive(**good))
    with pytest.raises(Misconfigured, match=message):
        model_contrastive(**good | wrong)


def test_a_bad_temperature_is_refused_when_the_term_is_made():
    with pytest.raises(Misconfigured, match="tau=0 must be positive"):
        ModelContrastive(tau=0)
