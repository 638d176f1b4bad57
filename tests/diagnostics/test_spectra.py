"""Spectra: what is significant, what averaging did to them, and that each is computed once."""

import gc
import math
from dataclasses import replace

import pytest
import torch

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import metrics as registry
from fedblade.diagnostics import Moments, spectrum, spectrum_ratio
from fedblade.diagnostics._local_spectrum import num_floored
from fedblade.diagnostics._spectrum import _CACHE, eigenvalues


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def moments_of(z):
    return Moments.of(z, torch.zeros(len(z), dtype=torch.int64), 1)


def with_spectrum(values, samples=40):
    ones = torch.ones(samples, 1, dtype=torch.float64)
    axes = torch.linalg.qr(torch.cat((ones, draw(samples, len(values))), 1)).Q[:, 1:]
    return math.sqrt(samples) * axes * torch.tensor(values, dtype=torch.float64).sqrt()


def test_significant_values_are_counted_by_the_natural_logarithm():
    logs = (3.0, -1.9, -1.99, -2.01, -4.7)
    totals = {"moments_feature": moments_of(with_spectrum([math.exp(each) for each in logs])).tree()}
    found = registry.get("spectrum").make().finish(totals)
    assert found["significant_values"] == 3
    assert [math.log(value) for value in found["spectrum"]] == pytest.approx(list(logs))
    assert found["zero_variance_share"] == 0


def test_constant_features_are_counted_beside_correlated_ones():
    z = draw(30, 8)
    z[:, 2], z[:, 5], z[:, 6] = 0.1, -7.0, z[:, 7]
    parts = [moments_of(part) for part in z.split(7)]
    totals = {"moments_feature": sum(parts[1:], parts[0]).tree()}
    assert registry.get("spectrum").make().finish(totals)["zero_variance_share"] == 2 / 8


@pytest.fixture
def calls(monkeypatch):
    seen, original = [], torch.linalg.eigvalsh

    def counted(square):
        seen.append(square)
        return original(square)

    monkeypatch.setattr(torch.linalg, "eigvalsh", counted)
    return seen


def test_metrics_that_ask_for_the_same_spectrum_share_it(calls):
    totals = {name: moments_of(draw(20, 5)).tree() for name in ("moments_feature", "moments_projected")}
    made = [registry.get(name).make() for name in ("spectrum", "erank_feature", "spectrum", "erank_feature")]
    found = [metric.finish(totals) for metric in made]
    assert len(calls) == 2  # the covariance and the correlation
    assert found[:2] == found[2:]
    registry.get("erank_proj").make().finish(totals)
    assert len(calls) == 4


def test_sums_that_change_in_place_have_a_new_spectrum():
    moments = moments_of(draw(20, 5))
    before = eigenvalues(moments, "covariance").clone()
    for leaf in (moments.scatter, moments.outer):
        leaf.mul_(4)
    moments.total.mul_(2)
    torch.testing.assert_close(eigenvalues(moments, "covariance"), 4 * before)


def test_metrics_share_a_covariance_until_a_sum_changes():
    moments = moments_of(draw(20, 5))
    first = moments.covariance()
    assert Moments.from_tree(moments.tree()).covariance() is first
    other = replace(moments, total=moments.total + 1)
    assert not torch.allclose(other.covariance(), first)
    torch.testing.assert_close(moments.covariance(), first, rtol=0, atol=0)
    moments.count.mul_(2)
    assert not torch.allclose(moments.covariance(), first)


def test_sums_made_in_inference_mode_have_the_same_spectrum():
    features = draw(20, 5)
    with torch.inference_mode():
        found = eigenvalues(moments_of(features), "correlation")
    assert torch.equal(found, eigenvalues(moments_of(features), "correlation"))


def test_spectra_are_forgotten_with_their_moments():
    gc.collect()
    before = len(_CACHE)
    moments = moments_of(draw(20, 5))
    eigenvalues(moments, "covariance")
    assert len(_CACHE) == before + 1
    del moments
    gc.collect()
    assert len(_CACHE) == before


def reference_ratio(local, aggregated):
    pairs = zip(sorted(local.tolist()), sorted(aggregated.tolist()), strict=True)
    return sum(math.log(max(a, 1e-12) / max(b, 1e-12)) for a, b in pairs) / len(local)


@pytest.mark.parametrize("seed", range(4))
def test_the_ratio_is_the_mean_log_of_sorted_values(seed):
    local, aggregated = draw(7, seed=seed).square(), draw(7, seed=seed + 9).square()
    local[2], aggregated[5], aggregated[6] = 0.0, 1e-20, 1e-13
    assert spectrum_ratio(local, aggregated) == pytest.approx(reference_ratio(local, aggregated), rel=1e-12)
    assert num_floored(local, aggregated) == 3
    assert spectrum_ratio(local.flip(0), aggregated) == spectrum_ratio(local, aggregated)


def test_ratio_of_equal_and_of_scaled_spectra():
    values = spectrum(draw(30, 6))
    assert spectrum_ratio(values, values) == 0
    assert spectrum_ratio(values, 5 * values) == pytest.approx(-math.log(5))
    assert spectrum_ratio(values, values / 5) > 0
    assert num_floored(values, values) == 0
    assert math.isnan(spectrum_ratio(values, values * math.nan))


@pytest.mark.parametrize("shapes", [((3,), (4,)), ((2, 3), (2, 3)), ((0,), (0,))])
def test_spectra_that_do_not_match_are_refused(shapes):
    local, aggregated = map(torch.ones, shapes)
    for function in (spectrum_ratio, num_floored):
        with pytest.raises(Misconfigured, match="two of the same length"):
            function(local, aggregated)
