import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.errors import Misconfigured, Unsupported
from fedblade.losses import LDDecorr, lddecorr


def zscore(z, ddof=0, var_eps=1e-8):
    return (z - z.mean(0)) / (z.var(0, correction=ddof) + var_eps).sqrt()


def reference(z, eps=1e-4, ddof=0):
    Z = zscore(z, ddof)
    K = Z.T @ Z / len(z)
    return -torch.linalg.slogdet(K + eps * torch.eye(z.shape[1], dtype=z.dtype)).logabsdet


def deflated(z, eps=1e-4):
    """The dual without the direction 1, along which a centred batch has no extent."""
    rows, dim = z.shape
    ones = torch.ones(rows, 1, dtype=z.dtype)
    Q = torch.linalg.qr(torch.cat((ones, torch.eye(rows, dtype=z.dtype)[:, 1:]), 1)).Q[:, 1:].T
    Y = Q @ zscore(z)
    matrix = torch.eye(rows - 1, dtype=z.dtype) + Y @ Y.T / (rows * eps)
    return -dim * math.log(eps) - torch.linalg.slogdet(matrix).logabsdet


def relu_batch(batch, dim, seed=0):
    return torch.randn(batch, dim, generator=torch.Generator().manual_seed(seed)).relu()


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(2, 9),
    dim=st.integers(1, 9),
    ddof=st.sampled_from([0, 1]),
    form=st.sampled_from(["auto", "dual", "primal"]),
    seed=st.integers(0, 99),
)
def test_value_and_gradient_match_the_determinant(batch, dim, ddof, form, seed, laws, double):
    z = double(batch, dim, seed=seed)
    ours = laws.value_and_gradient(lambda x: lddecorr(x, ddof=ddof, form=form), z)
    laws.same(ours, laws.value_and_gradient(lambda x: reference(x, ddof=ddof), z), 1e-7)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_gradcheck(shape, double):
    assert torch.autograd.gradcheck(lddecorr, double(*shape).requires_grad_())


def test_forms_agree_at_the_papers_shape(laws):
    z = relu_batch(64, 256).double()
    expected = laws.value_and_gradient(lambda x: lddecorr(x, form="dual"), z)
    laws.same(laws.value_and_gradient(lambda x: lddecorr(x, form="primal"), z), expected, 1e-7)
    laws.same(laws.value_and_gradient(deflated, z), expected, 1e-7)


def test_the_comparison_rejects_a_wrong_degree_of_freedom(laws, double):
    z = double(6, 4)
    wrong = laws.value_and_gradient(lambda x: lddecorr(x, ddof=1), z)
    with pytest.raises(AssertionError):
        laws.same(wrong, laws.value_and_gradient(reference, z), 1e-4)


def test_gradient_with_respect_to_z_scores_is_the_closed_form(double):
    eps, batch = 1e-4, 5
    Z = zscore(double(batch, 8)).requires_grad_()
    value = -torch.linalg.slogdet(Z.T @ Z / batch + eps * torch.eye(8, dtype=Z.dtype)).logabsdet
    (gradient,) = torch.autograd.grad(value, Z)
    dual = Z @ Z.T / batch + eps * torch.eye(batch, dtype=Z.dtype)
    torch.testing.assert_close(gradient, -2 / batch * torch.linalg.solve(dual, Z), rtol=1e-7, atol=1e-8)


def test_decorrelated_features_reach_the_value_at_the_identity(double):
    q = torch.linalg.qr(torch.cat((torch.ones(12, 1, dtype=torch.float64), double(12, 5)), 1)).Q[:, 1:]
    assert lddecorr(q).item() == pytest.approx(-5 * math.log(1 + 1e-4), abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(batch=st.integers(2, 8), dim=st.integers(1, 12), seed=st.integers(0, 99))
def test_value_is_above_its_analytic_minimum(batch, dim, seed, double):
    term = LDDecorr()
    result = term(double(batch, dim, seed=seed), None)
    rank = min(batch - 1, dim)
    assert result.logs["ld_centered"] >= -rank * math.log(dim / rank + term.eps) - 1e-9
    constant = (dim - rank) * math.log(term.eps)
    assert result.value.item() + constant == pytest.approx(result.logs["ld_centered"].item(), abs=1e-9)


def test_invariant_to_positive_affine_maps_of_each_feature(double):
    z, slope = double(7, 5), double(5, seed=1).exp()
    assert lddecorr(z * slope + 3).item() == pytest.approx(lddecorr(z).item(), abs=1e-5)


def test_default_arithmetic_is_accurate_in_float32_and_the_papers_is_not():
    z = relu_batch(64, 1280)

    def gradient(x, **options):
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(lddecorr(leaf, **options), leaf)[0].double()

    exact = gradient(z.double())
    assert (gradient(z) - exact).norm() < 1e-5 * exact.norm()
    assert (gradient(z, form="primal", precision="f32") - exact).norm() > 1e-2 * exact.norm()
    assert lddecorr(z).dtype == torch.float32


def test_a_single_sample_gives_a_graph_connected_zero(double):
    z = double(1, 4).requires_grad_()
    value = lddecorr(z)
    assert value.item() == 0
    assert (torch.autograd.grad(value, z)[0] == 0).all()
    padded = double(3, 4).requires_grad_()
    result = LDDecorr()(padded, torch.tensor([1.0, 0.0, 0.0]))
    assert (torch.autograd.grad(result.value, padded)[0] == 0).all()
    assert [result.value.item(), *(each.item() for each in result.logs.values())] == [0, 0, 0, 0]


def test_dead_features_have_no_gradient_and_are_counted(double):
    z = double(6, 5)
    z[:, 1], z[:, 3] = 0.25, 0.0
    z.requires_grad_()
    result = LDDecorr()(z, None)
    (gradient,) = torch.autograd.grad(result.value, z)
    assert result.logs["count_dead_features"] == 2
    assert torch.isfinite(gradient).all()
    assert (gradient[:, [1, 3]] == 0).all()


def test_padding(laws, double):
    laws.padding(lddecorr, double(5, 8))
    laws.padding(lddecorr, double(9, 3))


def test_vmap(laws, double):
    laws.vmap(lddecorr, double(3, 5, 7))
    masks = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0.0]])
    laws.vmap(lambda z, mask: lddecorr(z, mask=mask), double(3, 5, 7), masks)
    nested = torch.func.vmap(torch.func.vmap(lddecorr))(double(2, 3, 5, 7))
    torch.testing.assert_close(nested[1, 2], lddecorr(double(2, 3, 5, 7)[1, 2]))
    z = double(5, 7)
    one_batch_three_masks = torch.func.vmap(lambda m: lddecorr(z, mask=m))(masks)
    torch.testing.assert_close(one_batch_three_masks[1], lddecorr(z, mask=masks[1]))


def test_float64_at_usual_eps_never_asks_whether_it_failed(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.Tensor, "__bool__", lambda self: asked.append(self) or False)
    lddecorr(relu_batch(64, 1280))
    assert asked == []
    lddecorr(relu_batch(64, 128), precision="f32", form="primal")
    assert asked


def _failing_cholesky(monkeypatch, failures):
    """Make the first `failures` factorisations fail, and record what was asked for."""
    real, calls = torch.linalg.cholesky_ex, []

    def cholesky_ex(matrix):
        calls.append((matrix.dtype, matrix))
        factor, info = real(matrix)
        bad = len(calls) <= failures
        return (torch.full_like(factor, torch.nan), torch.ones_like(info)) if bad else (factor, info)

    monkeypatch.setattr(torch.linalg, "cholesky_ex", cholesky_ex)
    return calls


@pytest.mark.parametrize(("failures", "factor"), [(1, 1), (2, 10), (3, 100), (4, 1000)])
def test_a_failed_factorisation_is_repeated_in_float64_then_with_more_jitter(failures, factor, monkeypatch, laws):
    z = relu_batch(40, 20)
    expected = laws.value_and_gradient(lambda x: lddecorr(x, 1e-4 * factor), z)
    calls = _failing_cholesky(monkeypatch, failures)
    ours = laws.value_and_gradient(lambda x: lddecorr(x, form="primal", precision="f32"), z)
    assert [dtype for dtype, _ in calls] == [torch.float32] + [torch.float64] * failures
    laws.same(ours, expected, 1e-5)


def test_float32_noise_that_breaks_the_factorisation_is_survived():
    z = torch.outer(torch.linspace(-1, 1, 8), torch.linspace(1, 2, 60))
    Z = zscore(z)
    assert torch.linalg.cholesky_ex(Z.T @ Z / 8 + 1e-8 * torch.eye(60)).info > 0
    value = lddecorr(z, 1e-8, form="primal", precision="f32")
    torch.testing.assert_close(value, lddecorr(z, 1e-8), rtol=1e-4, atol=0)


def test_a_batch_that_cannot_be_factorised_counts_and_gives_zero(monkeypatch, double):
    term = LDDecorr(eps=1e-14)
    z = double(4, 6).requires_grad_()
    calls = _failing_cholesky(monkeypatch, 99)
    result = term(z, None)
    assert len(calls) == 4
    assert result.value == 0
    assert result.logs["count_cholesky_failures"] == 1
    assert (torch.autograd.grad(result.value, z)[0] == 0).all()


def test_only_the_failed_client_is_repeated(monkeypatch, double):
    z = double(2, 4, 6)
    expected = torch.func.vmap(lambda x: lddecorr(x, 1e-14))(z)
    real = torch.linalg.cholesky_ex

    def second_fails(matrix):
        factor, info = real(matrix)
        return factor, info + torch.tensor([0, 1], dtype=info.dtype)

    monkeypatch.setattr(torch.linalg, "cholesky_ex", second_fails)
    values = torch.func.vmap(lambda x: lddecorr(x, 1e-14))(z)
    torch.testing.assert_close(values, expected * torch.tensor([1.0, 0.0], dtype=torch.float64))


def test_features_that_are_not_finite_stay_visible(double):
    z = double(4, 6)
    z[0, 0] = torch.nan
    assert torch.isnan(lddecorr(z))


def test_autocast_and_half_precision_do_not_reach_the_factorisation(laws):
    z = relu_batch(8, 16)
    for precision in ("f64", "f32"):
        expected = laws.value_and_gradient(lambda x, p=precision: lddecorr(x, precision=p), z)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = laws.value_and_gradient(lambda x, p=precision: lddecorr(x, precision=p), z)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    half = z.bfloat16()
    torch.testing.assert_close(lddecorr(half), lddecorr(half.float()).bfloat16())


def test_second_derivatives_are_refused(double):
    def slope(z):
        return torch.func.grad(lddecorr)(z).square().sum()

    with pytest.raises(Unsupported, match="second derivatives"):
        torch.func.grad(slope)(double(4, 6))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eps": 0.0}, "eps=0.0 must be positive"),
        ({"var_eps": -1.0}, "var_eps=-1.0 must be positive"),
        ({"ddof": 2}, "ddof=2"),
        ({"form": "duel"}, "Did you mean 'dual'"),
        ({"precision": "f16"}, "precision 'f16'"),
    ],
)
def test_bad_knobs_are_refused(options, message, double):
    with pytest.raises(Misconfigured, match=message):
        lddecorr(double(3, 3), **options)
    with pytest.raises(Misconfigured, match=message):
        LDDecorr(**options)


def test_features_with_more_axes_are_refused(double):
    with pytest.raises(Misconfigured, match=r"shape \(2, 3, 4\)"):
        lddecorr(double(2, 3, 4))
