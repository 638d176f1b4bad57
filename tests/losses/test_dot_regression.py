from dataclasses import replace

import pytest
import torch

from fedblade.core.registry import losses as registry
from fedblade.heads import simplex_etf
from fedblade.losses import DotRegression, dot_regression, feature_distillation

ETF = simplex_etf(6, 4, seed=3, dtype=torch.float64)
LABELS = torch.tensor([0, 3, 3, 1, 2])


def reference(z, labels, etf):
    terms = []
    for row, label in zip(z, labels, strict=True):
        cosine = row @ etf[:, label] / (row.norm() * etf[:, label].norm())
        terms.append(0.5 * (cosine - 1) ** 2)
    return sum(terms) / len(terms)


def test_value_and_gradient_match_the_loop(laws, double):
    z = double(5, 6)
    ours = laws.value_and_gradient(lambda x: dot_regression(x, LABELS, ETF), z)
    laws.same(ours, laws.value_and_gradient(lambda x: reference(x, LABELS, ETF), z))
    assert torch.autograd.gradcheck(lambda x: dot_regression(x, LABELS, ETF), z.requires_grad_())


def test_gradient_is_the_analytic_one_and_orthogonal_to_the_feature(laws, double):
    z = double(5, 6)
    _, gradient = laws.value_and_gradient(lambda x: dot_regression(x, LABELS, ETF), z)
    length, v = z.norm(dim=1, keepdim=True), ETF.T[LABELS]
    cosine = (z * v).sum(1, keepdim=True) / length
    torch.testing.assert_close(gradient, -(1 - cosine) / length * (v - cosine * z / length) / 5)
    torch.testing.assert_close((gradient * z).sum(1), torch.zeros(5, dtype=z.dtype), atol=1e-15, rtol=0)


def test_the_comparison_rejects_a_pushing_gradient(laws, double):
    z = double(5, 6)
    pushing = laws.value_and_gradient(
        lambda x: torch.nn.functional.cross_entropy(torch.nn.functional.normalize(x) @ ETF, LABELS), z
    )
    with pytest.raises(AssertionError):
        laws.same(pushing, laws.value_and_gradient(lambda x: reference(x, LABELS, ETF), z), 1e-3)


def test_other_class_vectors_do_not_matter(double):
    z, labels = double(5, 6), torch.zeros(5, dtype=torch.int64)
    other = ETF.clone()
    other[:, 1:] = double(6, 3, seed=1)
    assert dot_regression(z, labels, other) == dot_regression(z, labels, ETF)


def test_range_and_zero_vectors():
    labels = torch.arange(4)
    assert dot_regression(2 * ETF.T, labels, ETF).item() == pytest.approx(0, abs=1e-15)
    assert dot_regression(-ETF.T, labels, ETF).item() == pytest.approx(2)
    zero = torch.zeros(4, 6, dtype=torch.float64, requires_grad=True)
    value = dot_regression(zero, labels, ETF)
    assert value.item() == pytest.approx(0.5)
    assert (torch.autograd.grad(value, zero)[0] == 0).all()


def test_dot_regression_padding_and_vmap(laws, double):
    laws.padding(lambda z, labels, mask: dot_regression(z, labels, ETF, mask=mask), double(5, 6), LABELS)
    labels = torch.stack((LABELS, LABELS.flip(0), LABELS.roll(1)))
    laws.vmap(lambda z, y: dot_regression(z, y, ETF), double(3, 5, 6), labels)


def test_the_term_reads_the_projected_features_of_the_step(step):
    view = step()
    term = registry.get("dot_regression").make()
    assert term == DotRegression()
    assert (term.name, term.supervised) == ("supervised", True)
    assert view.output.projected.shape != view.features.shape
    etf = view.fixed["etf"]
    assert term(view).value == dot_regression(view.output.projected, view.labels, etf)
    mask = torch.tensor([1, 1, 0, 0, 1, 0])
    expected = dot_regression(view.output.projected, view.labels, etf, mask=mask)
    assert term(replace(view, mask=mask)).value == expected


def test_distillation_matches_the_loop_and_leaves_the_anchor_alone(laws, double):
    z, anchor = double(5, 6), double(5, 6, seed=1).requires_grad_()

    def slow(x):
        return sum((x[i] - anchor.detach()[i]).square().sum() / 6 for i in range(5)) / 5

    ours = laws.value_and_gradient(lambda x: feature_distillation(x, anchor), z)
    laws.same(ours, laws.value_and_gradient(slow, z))
    torch.testing.assert_close(ours[1], 2 * (z - anchor.detach()) / 30)
    z.requires_grad_()
    feature_distillation(z, anchor).backward()
    assert anchor.grad is None
    assert feature_distillation(z, z.detach()) == 0


def test_distillation_padding_and_vmap(laws, double):
    laws.padding(feature_distillation, double(5, 6), double(5, 6, seed=1))
    laws.vmap(feature_distillation, double(3, 5, 6), double(3, 5, 6, seed=1))
