import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses as registry
from fedblade.core.terms import FeatureTerm
from fedblade.losses import Decorr, FedDecorr, LDDecorr, feddecorr


def correlation(z, ddof):
    Z = (z - z.mean(0)) / (z.var(0, correction=ddof) + 1e-8).sqrt()
    return Z.T @ Z / len(z)


def reference(z, scale, ddof=1):
    """Both scales entry by entry."""
    K, (batch, dim) = correlation(z, ddof), z.shape
    if scale == "paper":
        return sum(K[i, j] ** 2 for i in range(dim) for j in range(dim)) / dim**2
    pairs = [(batch * K[i, j]) ** 2 for i in range(dim) for j in range(dim) if i != j]
    return sum(pairs) / len(pairs) / batch


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(2, 8),
    dim=st.integers(2, 7),
    scale=st.sampled_from(["paper", "official"]),
    ddof=st.sampled_from([0, 1]),
    form=st.sampled_from(["auto", "dual", "primal"]),
    seed=st.integers(0, 99),
)
def test_value_and_gradient_match_the_entries(batch, dim, scale, ddof, form, seed, laws, double):
    z = double(batch, dim, seed=seed)
    ours = laws.value_and_gradient(lambda x: feddecorr(x, scale, ddof=ddof, form=form), z)
    # Two samples standardise to plus and minus one whatever they are: what is left of the gradient, of the order of
    # var_eps, is a difference of numbers a thousand times larger, and loses as many digits.
    tolerance = 1e-9 if batch == 2 else 1e-10
    laws.same(ours, laws.value_and_gradient(lambda x: reference(x, scale, ddof), z), tolerance)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
@pytest.mark.parametrize("scale", ["paper", "official"])
def test_gradcheck(shape, scale, double):
    assert torch.autograd.gradcheck(lambda z: feddecorr(z, scale), double(*shape).requires_grad_())


def test_the_comparison_rejects_the_diagonal(laws, double):
    z = double(6, 4)
    with pytest.raises(AssertionError):
        laws.same(
            laws.value_and_gradient(lambda x: feddecorr(x, "paper") * 6, z),
            laws.value_and_gradient(lambda x: reference(x, "official"), z),
            1e-3,
        )


def test_eigenvalue_variance_is_the_norm_without_the_identity(double):
    z = double(9, 5)
    eigenvalues = torch.linalg.eigvalsh(correlation(z, 0))
    spread = (eigenvalues - eigenvalues.mean()).square().sum()
    assert (25 * feddecorr(z, ddof=0) - 5).item() == pytest.approx(spread.item(), rel=1e-6)


def test_official_scale_is_the_off_diagonal_mean_times_the_batch(double):
    z = double(8, 5)
    K = correlation(z, 0)
    mean = (K.square().sum() - K.diagonal().square().sum()) / 20
    assert feddecorr(z, "official").item() == pytest.approx((8 * (7 / 8) ** 2 * mean).item(), rel=1e-6)


def test_invariant_to_positive_affine_maps_of_each_feature(double):
    z, slope = double(7, 5), double(5, seed=1).exp()
    assert feddecorr(z * slope + 3).item() == pytest.approx(feddecorr(z).item(), rel=1e-5)


def test_minimum_is_set_by_the_smaller_side(double):
    tall = torch.linalg.qr(torch.cat((torch.ones(12, 1, dtype=torch.float64), double(12, 4)), 1)).Q[:, 1:]
    assert feddecorr(tall, ddof=0).item() == pytest.approx(1 / 4, rel=1e-6)
    assert feddecorr(double(4, 50), ddof=0) >= 1 / 3


def test_single_samples_and_constant_features(double):
    z = double(1, 4).requires_grad_()
    assert feddecorr(z) == 0
    assert (torch.autograd.grad(feddecorr(z), z)[0] == 0).all()
    z = double(5, 4)
    z[:, 2] = 0.5
    z.requires_grad_()
    (gradient,) = torch.autograd.grad(feddecorr(z, "official"), z)
    assert torch.isfinite(gradient).all()
    assert (gradient[:, 2] == 0).all()
    assert feddecorr(double(5, 1), "official") == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("term", [FedDecorr(), LDDecorr(), FedDecorr(var_eps=1e-4), LDDecorr(ddof=1)])
def test_both_terms_count_dead_features(term, double):
    z = double(6, 5)
    z[:, 1], z[:, 3] = 0.25, 1e-4 * z[:, 3]
    assert term(z, None).logs["count_dead_features"] == 2
    padded = torch.cat((z, double(2, 5, seed=1)))
    for real, expected in ((6, 2), (1, 0), (0, 0)):
        mask = (torch.arange(8) < real).double()
        assert term(padded, mask).logs["count_dead_features"] == expected
    assert term(z[:1], None).logs["count_dead_features"] == 0
    assert term(z.float(), None).logs["count_dead_features"].dtype == torch.float32
    stacked = torch.func.vmap(lambda x: term(x, None).logs["count_dead_features"])(torch.stack((z, double(6, 5))))
    assert stacked.tolist() == [2, 0]


@pytest.mark.parametrize("scale", ["paper", "official"])
def test_padding_and_vmap(scale, laws, double):
    laws.padding(lambda z, mask: feddecorr(z, scale, mask=mask), double(5, 8))
    laws.padding(lambda z, mask: feddecorr(z, scale, mask=mask), double(9, 3))
    laws.vmap(lambda z: feddecorr(z, scale), double(3, 5, 7))
    masks = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0.0]])
    laws.vmap(lambda z, mask: feddecorr(z, scale, mask=mask), double(3, 5, 7), masks)


def test_float32_stays_float32_and_is_accurate():
    z = torch.randn(64, 256, generator=torch.Generator().manual_seed(0)).relu()
    exact = feddecorr(z.double())
    for precision in ("own", "f32", "f64"):
        value = feddecorr(z, precision=precision)
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(exact.item(), rel=1e-5)


def test_config_table_picks_the_normative_values_of_each_kind():
    assert Decorr().term(0.005) == LDDecorr(weight=0.005, eps=1e-4, ddof=0, precision="f64")
    expected = FedDecorr(weight=0.1, scale="official", ddof=1, precision="own", balance=0.1)
    assert Decorr(kind="feddecorr", balance=0.1).term(0.1) == expected
    chosen = Decorr(ddof=1, precision="f32", form="primal", eps=1e-3, var_eps=1e-6).term(1.0)
    assert chosen == LDDecorr(ddof=1, precision="f32", form="primal", eps=1e-3, var_eps=1e-6)


def test_terms_are_registered_and_evaluate_their_function(double):
    z = double(5, 4)
    for name, function in (("feddecorr", lambda x: feddecorr(x, "official")), ("lddecorr", None)):
        term = registry.get(name).make(weight=0.5)
        assert isinstance(term, FeatureTerm)
        assert term.name == "decorr"
        if function:
            assert term(z, None).value == function(z)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "logdte"}, "Did you mean 'logdet'"),
        ({"eps": 0}, "eps=0 must be positive"),
        ({"var_eps": 0}, "var_eps=0 must be positive"),
        ({"ddof": 3}, "ddof=3"),
        ({"form": "primol"}, "Did you mean 'primal'"),
        ({"precision": "f65"}, "Did you mean 'f64'"),
        ({"scale": "papers"}, "Did you mean 'paper'"),
        ({"balance": -1.0}, "decorr.balance=-1.0"),
        ({"balance": "non"}, "decorr.balance='non'"),
    ],
)
def test_bad_config_is_refused(options, message):
    with pytest.raises(Misconfigured, match=message):
        Decorr(**options)
