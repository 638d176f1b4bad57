"""Diagnostics of features far from the origin: nothing may depend on where the features lie."""

from functools import reduce
from operator import add

import pytest
import torch

from fedblade.diagnostics import Moments, effective_rank, nc1, nc2, spectrum
from fedblade.diagnostics._collapse import finish_nc1, finish_nc2
from fedblade.diagnostics._spectrum import eigenvalues, entropy_rank

OFFSETS = (0.0, 1e3, 1e6)
CLASSES = 5


def draw(samples=2000, dim=6, std=1.0):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CLASSES, (samples,), generator=generator)
    z = torch.randn(samples, dim, generator=generator, dtype=torch.float64)
    return std * (z + 0.3 * torch.randn(CLASSES, dim, generator=generator, dtype=torch.float64)[labels]), labels


def batches(z, labels, size=100):
    parts = zip(z.split(size), labels.split(size), strict=True)
    return reduce(add, [Moments.of(each, mine, CLASSES) for each, mine in parts])


def assert_near(found, expected, tolerance):
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, rel=tolerance), key


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("matrix", ["covariance", "correlation"])
def test_whole_sets_have_the_spectrum_of_the_centred_features(offset, matrix):
    z, _ = draw()
    torch.testing.assert_close(spectrum(z + offset, matrix), spectrum(z, matrix), rtol=1e-8, atol=0)
    assert effective_rank(z + offset, matrix) == pytest.approx(effective_rank(z, matrix), rel=1e-8)
    assert effective_rank((z + offset).float(), matrix) == pytest.approx(effective_rank(z, matrix), rel=1e-3)


@pytest.mark.parametrize(("offset", "std"), [(0.0, 1.0), (1e3, 1.0), (1e6, 1.0), (1e5, 1e-3)])
def test_whole_sets_collapse_wherever_they_lie(offset, std):
    z, labels = draw(std=std)
    here, there = nc1(z, labels), nc1(z + offset, labels)
    assert here["nc1_ratio"] > 0.8
    assert_near(there, {key: here[key] for key in ("nc1_pinv", "nc1_ratio")}, 1e-5)
    assert 0 <= there["nc1_unit"] <= 1
    assert_near(nc2(z + offset, labels), nc2(z, labels), 1e-5)


LIMITS = [(0.0, 1e-12), (1e3, 1e-7), (1e5, 1e-3), (1e6, 0.03)]


@pytest.mark.parametrize(
    ("dtype", "offset", "tolerance"),
    [(dtype, *limit) for dtype in (torch.float64, torch.float32) for limit in LIMITS] + [(torch.float64, 1e9, 0.03)],
)
def test_sums_over_batches_stay_within_the_documented_limit(dtype, offset, tolerance):
    """Where the means of batches can no longer be told apart, their share of the variance is lost: here 1/100."""
    z, labels = draw()
    exact = Moments.of(z, labels, CLASSES)
    moments = batches((z + offset).to(dtype), labels)
    rounding = 0.0 if dtype == torch.float64 else 1e-6 + 1e-9 * offset
    largest = exact.covariance().abs().max()
    assert (moments.covariance() - exact.covariance()).abs().max() <= (tolerance + rounding) * largest
    for matrix in ("covariance", "correlation"):
        rank = entropy_rank(eigenvalues(exact, matrix))
        assert entropy_rank(eigenvalues(moments, matrix)) == pytest.approx(rank, rel=tolerance + rounding)
    ratio = finish_nc1(exact)["nc1_ratio"]
    assert finish_nc1(moments)["nc1_ratio"] == pytest.approx(ratio, rel=tolerance + rounding)
    assert finish_nc2(moments)["nc2_fro"] == pytest.approx(finish_nc2(exact)["nc2_fro"], rel=1e-2)


@pytest.mark.parametrize("offset", OFFSETS)
def test_constant_features_have_no_variance_in_any_batch(offset):
    z, labels = draw(dim=3)
    z[:, 1] = 0.1
    moments = batches(z + offset, labels, 64)
    assert (moments.covariance()[1] == 0).all()
    assert (moments.correlation()[1] == 0).all()
    assert moments.correlation()[0, 0] == pytest.approx(1)


def test_a_feature_that_only_moves_its_last_digit_is_constant():
    z, _ = draw(dim=3)
    z = z.float()
    z[:, 1] = 1000.0
    z[::2, 1] = torch.nextafter(torch.tensor(1000.0), torch.tensor(2000.0))
    assert spectrum(z, "correlation")[-1] == 0
    assert spectrum(z.double(), "correlation")[-1] > 0.5  # in float64 the same movement is data


@pytest.mark.parametrize("offset", OFFSETS)
def test_padding_and_vmap(offset):
    z, labels = draw(20)
    z = z + offset
    mask = torch.arange(20) % 3 != 0
    padded = torch.where(mask[:, None], z, torch.nan)
    found = Moments.of(padded, torch.where(mask, labels, -1), CLASSES, mask)
    for name, leaf in Moments.of(z[mask], labels[mask], CLASSES).tree().items():
        torch.testing.assert_close(found.tree()[name], leaf)
    masks = torch.stack((mask, ~mask, torch.zeros(20, dtype=torch.bool)))
    stacked = torch.func.vmap(lambda each: Moments.of(z, labels, CLASSES, each).tree())(masks)
    for name, leaf in Moments.of(z[~mask], labels[~mask], CLASSES).tree().items():
        torch.testing.assert_close(stacked[name][1], leaf)
    assert all((leaf[2] == 0).all() for leaf in stacked.values())
