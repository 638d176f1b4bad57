import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import metrics as registry
from fedblade.core.streams import Streams
from fedblade.core.views import StepView
from fedblade.diagnostics import Moments, effective_rank, nc1, nc2, spectrum
from fedblade.heads import EtfProjectorHead, simplex_etf


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def labelled(samples=40, dim=6, classes=4, seed=0):
    labels = torch.arange(samples) % classes
    return draw(samples, dim, seed=seed) + 2 * draw(classes, dim, seed=seed + 1)[labels], labels


def uncorrelated(samples=20, dim=5):
    """Features whose covariance is exactly a multiple of the identity."""
    ones = torch.ones(samples, 1, dtype=torch.float64)
    return 3 * torch.linalg.qr(torch.cat((ones, draw(samples, dim)), 1)).Q[:, 1:]


def reference_nc1(z, labels):
    classes = sorted(set(labels.tolist()))
    means = torch.stack([z[labels == c].mean(0) for c in classes])
    within = sum(
        (z[i] - means[classes.index(y)]).outer(z[i] - means[classes.index(y)]) for i, y in enumerate(labels.tolist())
    )
    within = within / len(z)
    centred = means - means.mean(0)
    between = sum(m.outer(m) for m in centred) / len(classes)
    unit = [(z[labels == c] / z[labels == c].norm(dim=1, keepdim=True)).mean(0).square().sum() for c in classes]
    return {
        "nc1_pinv": (within @ torch.linalg.pinv(between, rtol=1e-10, hermitian=True)).trace() / len(classes),
        "nc1_ratio": within.trace() / (within + between).trace(),
        "nc1_unit": 1 - sum(unit) / len(classes),
    }


def reference_nc2(z, labels, centre=None):
    classes = sorted(set(labels.tolist()))
    C = len(classes)
    means = torch.stack([z[labels == c].mean(0) for c in classes])
    M = means - (means.mean(0) if centre is None else centre)
    A = torch.tensor([[(a @ b / (a.norm() * b.norm())).item() for b in M] for a in M], dtype=torch.float64)
    T = C / (C - 1) * torch.eye(C, dtype=torch.float64) - 1 / (C - 1)
    lengths = [m.norm().item() for m in M]
    mean = sum(lengths) / C
    pairs = [abs(A[i, j].item() + 1 / (C - 1)) for i in range(C) for j in range(C) if i != j]
    gram = M @ M.T
    return {
        "nc2_fro": (A - T).norm(),
        "nc2_normalised": (gram / gram.norm() - T / T.norm()).norm(),
        "nc2_equinorm": math.sqrt(sum((x - mean) ** 2 for x in lengths) / C) / mean,
        "nc2_equiangle": sum(pairs) / len(pairs),
    }


def assert_same(ours, expected, tolerance=1e-9):
    assert ours.keys() == expected.keys()
    for key, value in expected.items():
        assert ours[key] == pytest.approx(float(value), rel=tolerance, abs=tolerance), key


@settings(max_examples=20, deadline=None)
@given(samples=st.integers(8, 30), dim=st.integers(2, 8), classes=st.integers(2, 6), seed=st.integers(0, 99))
def test_collapse_matches_the_definitions(samples, dim, classes, seed):
    z, labels = labelled(samples, dim, classes, seed)
    assert_same(nc1(z, labels), reference_nc1(z, labels), 1e-6)
    assert_same(nc2(z, labels), reference_nc2(z, labels))


def test_the_comparison_rejects_centring_on_the_mean_of_samples():
    z, labels = labelled()
    uneven = labels.clamp(max=2)
    assert_same(nc2(z, uneven), reference_nc2(z, uneven))
    with pytest.raises(AssertionError):
        assert_same(nc2(z, uneven), reference_nc2(z, uneven, centre=z.mean(0)), 1e-3)


def test_absent_classes_are_left_out():
    z, labels = labelled(classes=3)
    renamed = torch.tensor([0, 4, 7])[labels]
    assert_same(nc1(z, renamed), nc1(z, labels))
    assert_same(nc2(z, renamed), nc2(z, labels))


def test_an_exact_etf_is_collapsed():
    V, labels = simplex_etf(9, 5, dtype=torch.float64), torch.arange(5).repeat(4)
    assert_same(nc1(V.T[labels], labels), dict.fromkeys(("nc1_pinv", "nc1_ratio", "nc1_unit"), 0.0))
    names = ("nc2_fro", "nc2_normalised", "nc2_equinorm", "nc2_equiangle")
    assert_same(nc2(V.T[labels] * 3 + 1, labels), dict.fromkeys(names, 0.0))


def test_what_is_undefined_is_nan_and_nothing_else():
    z, one = draw(6, 4), torch.zeros(6, dtype=torch.int64)
    assert all(math.isnan(value) for value in nc2(z, one).values())
    alone = nc1(z, one)
    assert math.isnan(alone["nc1_pinv"])
    assert alone["nc1_ratio"] == pytest.approx(1)
    assert 0 <= alone["nc1_unit"] <= 1
    empty = Moments.of(z, one, 2, torch.zeros(6))
    assert empty.count == 0
    assert math.isnan(effective_rank(torch.full((5, 3), 0.1)))


def test_unit_features_of_zero_length_count_as_no_direction():
    assert nc1(torch.zeros(4, 3), torch.tensor([0, 0, 1, 1]))["nc1_unit"] == 1


def test_spectrum_is_that_of_the_covariance():
    z = draw(30, 6) * torch.arange(1.0, 7.0) + 5
    eigenvalues = torch.linalg.eigvalsh(torch.cov(z.T, correction=0)).flip(0)
    torch.testing.assert_close(spectrum(z), eigenvalues)
    torch.testing.assert_close(spectrum(z, "correlation"), torch.linalg.eigvalsh(torch.corrcoef(z.T)).flip(0))
    assert spectrum(z.float()).dtype == torch.float64
    centred = draw(4, 9) - draw(4, 9).mean(0)
    gram = torch.linalg.eigvalsh(centred @ centred.T / 4).flip(0)
    torch.testing.assert_close(spectrum(centred)[:3], gram[:3])


def test_effective_rank_of_known_spectra():
    assert effective_rank(uncorrelated(dim=5)) == pytest.approx(5, abs=1e-12)
    assert effective_rank(torch.outer(draw(20), draw(6, seed=1)) + 4) == pytest.approx(1, abs=1e-9)
    two = uncorrelated(dim=2) * torch.tensor([3.0, 1.0])
    shares = [0.9, 0.1]
    assert effective_rank(two) == pytest.approx(math.exp(-sum(p * math.log(p) for p in shares)))
    assert effective_rank(two, "correlation") == pytest.approx(2)


@settings(max_examples=20, deadline=None)
@given(samples=st.integers(3, 20), dim=st.integers(1, 9), seed=st.integers(0, 99))
def test_effective_rank_is_bounded_and_scale_invariant(samples, dim, seed):
    z = draw(samples, dim, seed=seed)
    rank = effective_rank(z)
    assert 1 - 1e-9 <= rank <= min(samples - 1, dim) + 1e-9
    assert effective_rank(7 * z) == pytest.approx(rank)


def test_constant_features_do_not_pass_for_correlated_ones():
    z = torch.cat((uncorrelated(dim=3), torch.full((20, 2), 1e3 + 0.1, dtype=torch.float64)), 1)
    assert effective_rank(z, "correlation") == pytest.approx(3, abs=1e-9)
    assert effective_rank(z) == pytest.approx(3, abs=1e-9)


def test_an_unknown_matrix_is_refused():
    with pytest.raises(Misconfigured, match="Did you mean 'covariance'"):
        spectrum(draw(4, 3), "covarianse")


def step(batch=10, seed=0):
    head = EtfProjectorHead(proj_dim=4)
    made = head.init(6, 3, Streams(seed))
    z, labels = labelled(batch, 6, 3, seed)
    z = z.float()
    return StepView(
        params=made.params,
        anchor={},
        fixed=made.fixed,
        head=head,
        features=z,
        output=head(made.params, made.fixed, z),
        labels=labels,
        counts=torch.ones(3),
        server={},
        client={},
        round=0,
    )


def at(view, z):
    return replace(view, features=z, output=view.head(view.params, view.fixed, z))


def rows(view, keep):
    return replace(at(view, view.features[keep]), labels=view.labels[keep])


def totals(metric, *views):
    sums = {}
    for each in metric.passes:
        trees = [each.of(view) for view in views]
        sums[each.name] = {name: sum(tree[name] for tree in trees) for name in trees[0]}
    return metric.finish(sums)


METRICS = ("accuracy", "erank_feature", "erank_proj", "nc1", "nc2")


@pytest.mark.parametrize("name", METRICS)
def test_metrics_merge_over_batches_and_ignore_padding(name):
    metric, view = registry.get(name).make(), step()
    whole = totals(metric, view)
    assert all(math.isfinite(value) for value in whole.values())
    assert_same(totals(metric, rows(view, slice(0, 3)), rows(view, slice(3, 10))), whole, 1e-6)
    order = torch.arange(14) % 10
    mask = torch.cat((torch.ones(10), torch.zeros(4)))
    padded = rows(view, order)
    padded = replace(padded, mask=mask, labels=torch.where(mask != 0, padded.labels, -1))
    assert_same(totals(metric, padded), whole, 1e-6)


@pytest.mark.parametrize("name", METRICS)
def test_metric_passes_run_under_vmap(name):
    view, metric = step(), registry.get(name).make()
    z = torch.stack((view.features, 2 * view.features.flip(0)))
    for each in metric.passes:
        stacked = torch.func.vmap(lambda x, each=each: each.of(at(view, x)))(z)
        for key, leaf in each.of(at(view, z[1])).items():
            torch.testing.assert_close(stacked[key][1], leaf, rtol=1e-5, atol=1e-5)
            assert leaf.dtype == torch.float64


def test_accuracy_is_in_percent_and_the_loss_is_plain():
    view = step()
    logits = view.logits.double()
    found = totals(registry.get("accuracy").make(), view)
    right = sum(int(row.argmax()) == int(y) for row, y in zip(logits, view.labels, strict=True))
    expected = {
        "test_accuracy": 100 * right / 10,
        "test_loss": torch.nn.functional.cross_entropy(logits, view.labels),
    }
    assert_same(found, expected)


def test_metrics_are_the_functions_on_features_and_projections():
    view = step()
    z, projected = view.features, view.output.projected
    unit = projected / projected.norm(dim=1, keepdim=True)
    expected = {}
    for prefix, function in (("nc1", nc1), ("nc2", nc2)):
        for space, vectors in (("feature", z), ("proj", unit)):
            for key, value in function(vectors, view.labels).items():
                expected[key.replace(prefix, f"{prefix}_{space}")] = value
    found = totals(registry.get("nc1").make(), view) | totals(registry.get("nc2").make(), view)
    assert_same(found, expected, 1e-6)
    assert {"nc1_feature_pinv", "nc1_proj_unit", "nc2_proj_fro"} <= found.keys()
    ranks = totals(registry.get("erank_feature").make(), view) | totals(registry.get("erank_proj").make(), view)
    assert_same(
        ranks,
        {
            "erank_feature": effective_rank(z),
            "erank_feature_correlation": effective_rank(z, "correlation"),
            "erank_proj": effective_rank(projected),
            "erank_proj_correlation": effective_rank(projected, "correlation"),
        },
    )


def test_moments_add_up():
    z, labels = labelled()
    parts = Moments.of(z[:11], labels[:11], 4) + Moments.of(z[11:], labels[11:], 4)
    whole = Moments.of(z, labels, 4)
    for name in ("count", "total", "class_count", "class_total", "class_unit"):
        torch.testing.assert_close(parts.tree()[name], whole.tree()[name])
    torch.testing.assert_close(parts.covariance(), whole.covariance())
    torch.testing.assert_close(parts.scatter + parts.outer, whole.scatter + whole.outer)
    assert set(registry.names()) >= set(METRICS)
