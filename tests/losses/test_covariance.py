"""DeCov, Structured-DeCov and L_singular."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses as registry
from fedblade.core.terms import FeatureTerm
from fedblade.losses import DeCov, Singular, StructuredDeCov, decov, singular, structured_decov


def covariance(z):
    centred = z - z.mean(0)
    return centred.T @ centred / len(z)


def reference_decov(z, normalize=True):
    C, dim = covariance(z), z.shape[1]
    total = sum(C[i, j] ** 2 for i in range(dim) for j in range(dim) if i != j) / 2
    return total / dim**2 if normalize else total


def group_of(dim, groups):
    """Group number of every feature: runs of equal length, the first ones longer by one where needed."""
    sizes = [dim // groups + (g < dim % groups) for g in range(groups)]
    return [g for g, size in enumerate(sizes) for _ in range(size)]


def reference_structured(z, groups, kappa, normalize=True):
    C, dim = covariance(z), z.shape[1]
    group, total = group_of(dim, groups), z.sum() * 0
    for i in range(dim):
        for j in range(dim):
            if group[i] != group[j]:
                total = total + C[i, j] ** 2 / 2
            elif i != j:
                total = total - kappa * C[i, j] ** 2 / 2
    return total / dim**2 if normalize else total


def reference_singular(z):
    values = torch.linalg.svdvals(covariance(z))
    return (values - values.mean()).square().mean()


SHAPES = {"batch": st.integers(2, 8), "dim": st.integers(2, 7), "seed": st.integers(0, 99)}


@settings(max_examples=25, deadline=None)
@given(**SHAPES, normalize=st.booleans())
def test_decov_matches_the_entries(batch, dim, seed, normalize, laws, double):
    z = double(batch, dim, seed=seed)
    ours = laws.value_and_gradient(lambda x: decov(x, normalize=normalize), z)
    laws.same(ours, laws.value_and_gradient(lambda x: reference_decov(x, normalize), z))


@settings(max_examples=40, deadline=None)
@given(**SHAPES, normalize=st.booleans(), kappa=st.sampled_from([0.0, 0.3, 1.0]), data=st.data())
def test_structured_decov_matches_the_entries(batch, dim, seed, normalize, kappa, data, laws, double):
    groups = data.draw(st.integers(1, dim))
    z = double(batch, dim, seed=seed)
    ours = laws.value_and_gradient(lambda x: structured_decov(x, groups=groups, kappa=kappa, normalize=normalize), z)
    laws.same(ours, laws.value_and_gradient(lambda x: reference_structured(x, groups, kappa, normalize), z))


@settings(max_examples=25, deadline=None)
@given(**SHAPES)
def test_singular_is_the_variance_of_the_singular_values(batch, dim, seed, laws, double):
    z = double(batch, dim, seed=seed)
    value, gradient = laws.value_and_gradient(singular, z)
    assert value.item() == pytest.approx(reference_singular(z).item(), rel=1e-9, abs=1e-12)
    if batch > dim:  # elsewhere singular values repeat at 0, where only their symmetric functions have a derivative
        laws.same((value, gradient), laws.value_and_gradient(reference_singular, z), 1e-8)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
@pytest.mark.parametrize("loss", [decov, partial(structured_decov, groups=3, kappa=0.5), singular])
def test_gradcheck(shape, loss, double):
    assert torch.autograd.gradcheck(loss, double(*shape).requires_grad_())


def test_the_comparison_rejects_the_diagonal_and_the_sample_covariance(laws, double):
    z = double(6, 4)
    exact = laws.value_and_gradient(reference_decov, z)
    for wrong in (
        lambda x: covariance(x).square().sum() / 32,
        lambda x: reference_decov(x * (6 / 5) ** 0.5),
    ):
        with pytest.raises(AssertionError):
            laws.same(laws.value_and_gradient(wrong, z), exact, 1e-3)


LOSSES = {
    "decov": partial(decov, normalize=False),
    "structured": partial(structured_decov, groups=2, kappa=0.5, normalize=False),
    "singular": singular,
}


@pytest.mark.parametrize("shape", [(5, 4), (4, 3), (3, 2)])
def test_both_sides_of_the_covariance_agree(shape, laws, double):
    """Constant features add nothing to Σ but make the batch the smaller side, and padding makes it the larger one."""
    rows, dim = shape
    z = double(*shape)
    constant = torch.full((rows, 9), 2.5, dtype=torch.float64)
    primal = laws.value_and_gradient(partial(decov, normalize=False), z)
    dual = laws.value_and_gradient(lambda x: decov(torch.cat((x, constant), 1), normalize=False), z)
    laws.same(dual, primal, 1e-12)
    wide = torch.cat((z, constant), 1)
    padded = torch.cat((wide, double(20, dim + 9, seed=3)))
    mask = (torch.arange(rows + 20) < rows).double()
    for loss in LOSSES.values():
        thin = laws.value_and_gradient(loss, wide)
        tall = laws.value_and_gradient(lambda x, loss=loss: loss(x, mask=mask), padded)
        laws.same((tall[0], tall[1][:rows]), thin, 1e-12)


def orthogonal_columns(double, rows, dim):
    """Centred columns that are orthonormal, so Σ = I/rows."""
    return torch.linalg.qr(torch.cat((torch.ones(rows, 1, dtype=torch.float64), double(rows, dim)), 1)).Q[:, 1:]


def test_decorrelated_features_cost_nothing(double):
    z = orthogonal_columns(double, 12, 4) * torch.tensor([1, 5, 0.1, 2]) + 3
    assert decov(z, normalize=False).item() == pytest.approx(0, abs=1e-14)
    assert structured_decov(z, groups=2, normalize=False).item() == pytest.approx(0, abs=1e-14)
    assert decov(z + z[:, [1, 0, 2, 3]], normalize=False) > 0.1


def test_equal_singular_values_cost_nothing(double):
    z = orthogonal_columns(double, 12, 4)
    assert singular(7 * z).item() == pytest.approx(0, abs=1e-12)
    assert singular(z * torch.tensor([1, 5, 0.1, 2])) > 0.1


def test_a_group_for_every_feature_is_decov(laws, double):
    for shape in ((9, 5), (4, 7)):
        for normalize in (True, False):
            z = double(*shape)
            alone = laws.value_and_gradient(
                lambda x, n=normalize: structured_decov(x, groups=x.shape[1], normalize=n), z
            )
            laws.same(alone, laws.value_and_gradient(lambda x, n=normalize: decov(x, normalize=n), z), 1e-13)


def test_one_group_holds_everything(double):
    z = double(6, 5)
    assert structured_decov(z, groups=1).item() == pytest.approx(0, abs=1e-14)
    assert structured_decov(z, groups=1, kappa=0.5).item() == pytest.approx(-0.5 * decov(z).item())


def test_covariances_within_a_group_are_free(double):
    noise = double(50, 4)
    z = torch.stack((noise[:, 0], noise[:, 0] + 0.1 * noise[:, 1], noise[:, 2], noise[:, 2] + 0.1 * noise[:, 3]), 1)
    swapped = z[:, [0, 2, 1, 3]]
    assert decov(z).item() == pytest.approx(decov(swapped).item())
    assert structured_decov(swapped, groups=2) > 10 * structured_decov(z, groups=2)


@pytest.mark.parametrize("shape", [(9, 5), (4, 7)])
def test_singular_of_z_scored_features_is_the_correlation_without_the_identity(shape, double):
    z = double(*shape)
    scored = (z - z.mean(0)) / z.std(0, correction=0)
    K, dim = scored.T @ scored / shape[0], shape[1]
    assert singular(scored).item() == pytest.approx(((K.square().sum() - dim) / dim).item(), rel=1e-10)


def test_values_grow_with_the_fourth_power_and_not_with_an_offset(double):
    z = double(6, 4)
    for loss in (decov, partial(structured_decov, groups=2), singular):
        torch.testing.assert_close(loss(3 * z + 100), 81 * loss(z), rtol=1e-9, atol=0)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_single_sample_and_constant_features(loss, laws, double):
    value, gradient = laws.value_and_gradient(loss, double(1, 4))
    assert value == 0
    assert (gradient == 0).all()
    mask = torch.tensor([0, 1, 0, 0])
    value, gradient = laws.value_and_gradient(lambda x: loss(x, mask=mask), double(4, 4))
    assert value == 0
    assert (gradient == 0).all()
    z = double(5, 4)
    z[:, 2] = 0.5
    value, gradient = laws.value_and_gradient(loss, z)
    assert torch.isfinite(gradient).all()
    assert gradient[:, 2].abs().max() < 1e-14
    assert loss(torch.full((5, 4), 0.5)) == 0


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_padding_and_vmap(loss, laws, double):
    laws.padding(loss, double(5, 8))
    laws.padding(loss, double(9, 3))
    laws.vmap(loss, double(3, 5, 7))
    laws.vmap(loss, double(3, 7, 3))
    masks = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0.0]])
    laws.vmap(lambda z, mask: loss(z, mask=mask), double(3, 5, 7), masks)
    nothing = loss(double(5, 4).requires_grad_(), mask=torch.zeros(5))
    assert nothing == 0
    assert nothing.requires_grad


def test_half_precision_is_widened_and_float32_is_accurate():
    z = torch.randn(64, 96, generator=torch.Generator().manual_seed(0)).relu() + 3
    for loss in (decov, partial(structured_decov, groups=10, kappa=0.1), singular):
        exact = loss(z.double()).item()
        assert loss(z).dtype == torch.float32
        assert loss(z).item() == pytest.approx(exact, rel=1e-4)
        half = z.half().requires_grad_()
        assert loss(half).dtype == torch.float32
        assert loss(half).item() == pytest.approx(exact, rel=1e-2)
        assert torch.autograd.grad(loss(half), half)[0].dtype == torch.float16
        with torch.autocast("cpu", torch.bfloat16):
            assert loss(z).item() == pytest.approx(exact, rel=1e-4)


TERMS = {
    "decov": (DeCov(weight=0.5, normalize=False), partial(decov, normalize=False), "decov"),
    "structured_decov": (
        StructuredDeCov(weight=0.5, groups=3, kappa=0.2, normalize=False),
        partial(structured_decov, groups=3, kappa=0.2, normalize=False),
        "stdecov",
    ),
    "singular": (Singular(weight=0.5), singular, "lsingular"),
}


@pytest.mark.parametrize("key", TERMS)
def test_terms_evaluate_their_function_and_log_the_norm(key, double):
    term, function, name = TERMS[key]
    assert isinstance(term, FeatureTerm)
    assert registry.get(key).make is type(term)
    assert term.name == name
    for z in (double(5, 4), double(3, 7)):
        leaf = z.requires_grad_()
        result = term(leaf, None)
        assert result.value == function(z)
        norm = result.logs[f"{name}_norm"]
        assert norm.item() == pytest.approx(torch.linalg.matrix_norm(covariance(z)).item())
        assert not norm.requires_grad
    mask = torch.tensor([1, 1, 1, 0, 0])
    z = double(5, 4)
    masked = term(z, mask)
    assert masked.value.item() == pytest.approx(function(z[:3]).item())
    assert masked.logs[f"{name}_norm"].item() == pytest.approx(torch.linalg.matrix_norm(covariance(z[:3])).item())
    assert term(double(1, 4), None).logs[f"{name}_norm"] == 0
    stacked = double(2, 5, 4)
    norms = torch.func.vmap(lambda x: term(x, None).logs[f"{name}_norm"])(stacked)
    torch.testing.assert_close(norms, torch.stack([term(x, None).logs[f"{name}_norm"] for x in stacked]))


def test_defaults_are_those_of_the_card(double):
    z = double(6, 40)
    assert DeCov()(z, None).value == decov(z, normalize=True)
    assert StructuredDeCov()(z, None).value == structured_decov(z, groups=16, kappa=0.0, normalize=True)
    assert StructuredDeCov()(z, None).value == structured_decov(z)


@pytest.mark.parametrize("balance", [-1.0, "non", float("nan")])
@pytest.mark.parametrize("term", [DeCov, StructuredDeCov, Singular])
def test_a_bad_balance_is_refused(term, balance):
    with pytest.raises(Misconfigured, match=r"balance=.* must be 0 or more"):
        term(balance=balance)


def test_bad_groups_are_refused(double):
    with pytest.raises(Misconfigured, match="groups=0 given; 1 or more expected"):
        StructuredDeCov(groups=0)
    with pytest.raises(Misconfigured, match="groups=-2 given; 1 or more expected"):
        structured_decov(double(6, 4), groups=-2)
    with pytest.raises(Misconfigured, match="groups=5 given; 1 to 4, the number of features, expected"):
        structured_decov(double(6, 4), groups=5)
    with pytest.raises(Misconfigured, match="groups=16 given; 1 to 4"):
        StructuredDeCov()(double(6, 4), None)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_bad_tensors_are_refused(loss):
    with pytest.raises(Misconfigured, match=r"features of dtype torch.int64 given"):
        loss(torch.ones(5, 4, dtype=torch.int64))
    with pytest.raises(Misconfigured, match=r"features of shape \(4,\) given"):
        loss(torch.ones(4))
    with pytest.raises(Misconfigured, match=r"mask of shape \(3,\) given; \[5\] expected"):
        loss(torch.ones(5, 4), mask=torch.ones(3))
