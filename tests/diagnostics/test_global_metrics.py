"""Metrics of the global model against slow float64 references on stored features, however the samples are batched."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.registry import metrics as registry
from fedblade.core.streams import Streams
from fedblade.core.views import StepView
from fedblade.heads import EtfProjectorHead, LinearHead, simplex_etf

HEADS = {"projector": EtfProjectorHead(proj_dim=4), "bare": EtfProjectorHead(projector=False), "linear": LinearHead()}
NAMES = ("spectrum", "nc_error", "classes", "calibration", "class_means")
DIM, CLASSES = 6, 3


@cache
def tensors_of(head, dim, num_classes):
    return head.init(dim, num_classes, Streams(3))


def view_of(z, labels, head, mask=None, num_classes=CLASSES):
    made = tensors_of(head, z.shape[1], num_classes)
    params, fixed = ({name: leaf.to(z.dtype) for name, leaf in tree.items()} for tree in (made.params, made.fixed))
    return StepView(
        params=params,
        anchor={},
        fixed=fixed,
        head=head,
        features=z,
        output=head(params, fixed, z),
        labels=labels,
        counts=torch.ones(num_classes),
        server={},
        client={},
        round=0,
        mask=mask,
    )


def draw(samples=23, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (samples,), generator=generator)
    centres = torch.randn(CLASSES, DIM, generator=generator, dtype=torch.float64)
    return centres[labels] + 0.4 * torch.randn(samples, DIM, generator=generator, dtype=torch.float64) + 0.3, labels


def measure(name, views):
    metric, totals = registry.get(name).make(), {}
    for each in metric.passes:
        trees = [each.of(view) for view in views]
        assert all(leaf.dtype == torch.float64 for tree in trees for leaf in tree.values())
        totals[each.name] = {key: sum(tree[key] for tree in trees) for key in trees[0]}
    return metric.finish(totals)


def same(ours, expected, tolerance=1e-9):
    """Whether two results agree; what is undefined must be NaN as a number and None in a list."""
    if isinstance(expected, dict):
        return ours.keys() == expected.keys() and all(same(ours[key], expected[key], tolerance) for key in expected)
    if isinstance(expected, list):
        return len(ours) == len(expected) and all(same(a, b, tolerance) for a, b in zip(ours, expected, strict=True))
    if expected is None or ours is None:
        return ours is expected
    kind = type(expected)
    return isinstance(ours, kind) and ours == pytest.approx(expected, rel=tolerance, abs=tolerance, nan_ok=True)


def class_rows(vectors, labels):
    groups = {c: [v for v, y in zip(vectors, labels, strict=True) if y == c] for c in sorted(set(labels))}
    return {c: sum(rows) / len(rows) for c, rows in groups.items()}


def cosine(a, b):
    length = np.sqrt((a * a).sum()) * np.sqrt((b * b).sum())
    return float((a * b).sum() / length) if length > 1e-10 else None


def reference_spectrum(z, **_):
    deviations = np.stack([row - sum(z) / len(z) for row in z])
    values = np.zeros(z.shape[1])
    found = np.linalg.svd(deviations, compute_uv=False) ** 2 / len(z)
    values[: len(found)] = found
    return {
        "spectrum": values.tolist(),
        "significant_values": float(sum(value > 0 and math.log(value) > -2 for value in values)),
        "zero_variance_share": sum(len(set(column)) == 1 for column in z.T.tolist()) / z.shape[1],
    }


def reference_nc_error(projected, labels, unit, **_):
    rows = [v / max(np.linalg.norm(v), 1e-12) for v in projected] if unit else list(projected)
    means = list(class_rows(rows, labels).values())
    C = len(means)
    if C < 2:
        return {"nc_error": math.nan, "nc_error_centred": math.nan}
    found = {}
    for key, centre in (("nc_error", 0), ("nc_error_centred", sum(means) / C)):
        pairs = [(means[i] - centre, means[j] - centre) for i in range(C) for j in range(i + 1, C)]
        found[key] = sum(((cosine(a, b) or 0.0) + 1 / (C - 1)) ** 2 for a, b in pairs) / len(pairs)
    return found


def reference_classes(logits, labels, **_):
    C = logits.shape[1]
    confusion = [[0] * C for _ in range(C)]
    for row, y in zip(logits.tolist(), labels, strict=True):
        confusion[y][row.index(max(row))] += 1
    accuracy = [100 * row[c] / sum(row) if sum(row) else None for c, row in enumerate(confusion)]
    return {
        "confusion": confusion,
        "class_accuracy": accuracy,
        "worst_class_accuracy": min(each for each in accuracy if each is not None),
    }


def reference_calibration(logits, labels, **_):
    bins = [[] for _ in range(15)]
    for row, y in zip(logits.tolist(), labels, strict=True):
        shares = [math.exp(x - max(row)) for x in row]
        sure = max(shares) / sum(shares)
        (b,) = [b for b in range(15) if b / 15 < sure <= (b + 1) / 15]
        bins[b].append((sure, float(row.index(max(row)) == y)))
    means = [[sum(part) / len(part) for part in zip(*held, strict=True)] if held else [None, None] for held in bins]
    gaps = [len(held) * abs(sure - right) for held, (sure, right) in zip(bins, means, strict=True) if held]
    return {
        "ece": sum(gaps) / len(labels),
        "calibration": {
            "confidence": [sure for sure, _ in means],
            "accuracy": [right for _, right in means],
            "count": [len(held) for held in bins],
        },
    }


def reference_class_means(z, labels, num_classes, **_):
    means = class_rows(list(z), labels)
    centre = sum(means.values()) / len(means)
    cosines = [[None] * num_classes for _ in range(num_classes)]
    for a in means:
        for b in means:
            cosines[a][b] = cosine(means[a] - centre, means[b] - centre)
    return {"class_cosines": cosines}


def reference(name, view, **changed):
    stored = {
        "z": view.features.double().numpy(),
        "projected": view.output.projected.double().numpy(),
        "logits": view.logits.double().numpy(),
        "labels": view.labels.tolist(),
        "num_classes": view.logits.shape[1],
        "unit": isinstance(view.head, EtfProjectorHead),
    }
    return globals()[f"reference_{name}"](**(stored | changed))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", NAMES)
def test_metrics_are_their_definitions_in_one_batch_and_in_many(name, head):
    z, labels = draw()
    expected = reference(name, view_of(z, labels, HEADS[head]))
    for size in (23, 7, 1):
        parts = zip(z.split(size), labels.split(size), strict=True)
        found = measure(name, [view_of(*part, HEADS[head]) for part in parts])
        assert same(found, expected), (size, found, expected)


@settings(max_examples=15, deadline=None)
@given(samples=st.integers(1, 30), seed=st.integers(0, 999), scale=st.sampled_from([0.1, 1.0, 10.0]))
@pytest.mark.parametrize("name", NAMES)
def test_metrics_are_their_definitions_on_any_draw(name, samples, seed, scale):
    z, labels = draw(samples, seed)
    view = view_of(scale * z, labels, HEADS["linear"])
    found, expected = measure(name, [view]), reference(name, view)
    assert same(found, expected, 1e-7), (found, expected)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", NAMES)
def test_padding_counts_for_nothing_whatever_it_holds(name, head):
    z, labels = draw()
    mask = torch.arange(23) % 4 != 1
    expected = reference(name, view_of(z[mask], labels[mask], HEADS[head]))
    for junk, label in ((math.nan, -1), (math.inf, 10**6), (1e30, 0)):
        padded = torch.where(mask[:, None], z, junk), torch.where(mask, labels, label)
        assert same(measure(name, [view_of(*padded, HEADS[head], mask.double())]), expected), junk


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", NAMES)
def test_many_clients_at_once_are_each_of_them_alone(name, head):
    drawn = [draw(seed=seed) for seed in range(3)]
    z, labels = (torch.stack(each) for each in zip(*drawn, strict=True))
    mask = torch.stack([torch.arange(23) < keep for keep in (23, 11, 5)])
    metric = registry.get(name).make()
    view_of(z[0], labels[0], HEADS[head])  # initial tensors are drawn outside vmap
    stacked = {
        each.name: torch.func.vmap(lambda *given, each=each: each.of(view_of(*given[:2], HEADS[head], given[2])))(
            z, labels, mask
        )
        for each in metric.passes
    }
    for client in range(3):
        alone = {key: {n: leaf[client] for n, leaf in tree.items()} for key, tree in stacked.items()}
        real = mask[client]
        expected = reference(name, view_of(z[client][real], labels[client][real], HEADS[head]))
        assert same(metric.finish(alone), expected)


@pytest.mark.parametrize("name", NAMES)
def test_single_precision_features_are_added_in_double(name):
    z, labels = draw()
    view = view_of(z.float(), labels, HEADS["projector"])
    assert same(measure(name, [view]), reference(name, view), 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_classes_without_samples(name):
    z, labels = draw()
    view = view_of(z, torch.tensor([0, 4, 5])[labels], HEADS["linear"], num_classes=7)
    found = measure(name, [view])
    assert same(found, reference(name, view))
    if name == "class_means":
        assert [row is None for row in found["class_cosines"][4]] == [c not in (0, 4, 5) for c in range(7)]
        assert found["class_cosines"][1] == [None] * 7
    if name == "classes":
        assert [each is None for each in found["class_accuracy"]] == [c not in (0, 4, 5) for c in range(7)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("samples", [1, 9])
def test_one_class_and_one_sample(name, samples):
    z, _ = draw(samples)
    view = view_of(z, torch.ones(samples, dtype=torch.int64), HEADS["linear"])
    found = measure(name, [view])
    assert same(found, reference(name, view))
    if name == "spectrum" and samples == 1:
        assert found == {"significant_values": 0.0, "zero_variance_share": 1.0, "spectrum": [0.0] * DIM}
    if name == "class_means":
        assert found["class_cosines"] == [[None] * CLASSES] * CLASSES


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6 + 0.1])
@pytest.mark.parametrize("name", NAMES)
def test_constant_features(name, constant):
    _, labels = draw()
    z = torch.full((23, DIM), constant, dtype=torch.float64)
    views = [view_of(*part, HEADS["linear"]) for part in zip(z.split(5), labels.split(5), strict=True)]
    found = measure(name, views)
    if name == "spectrum":
        assert found == {"significant_values": 0.0, "zero_variance_share": 1.0, "spectrum": [0.0] * DIM}
    elif name == "nc_error":
        plain = 1.5 if constant else 0.5
        assert same(found, {"nc_error": plain**2, "nc_error_centred": 0.5**2})
    elif name == "class_means":
        assert found == {"class_cosines": [[None] * CLASSES] * CLASSES}
    else:
        assert same(found, reference(name, view_of(z, labels, HEADS["linear"])))


@pytest.mark.parametrize("name", NAMES)
def test_without_a_real_sample_everything_is_undefined(name):
    z, labels = draw()
    found = measure(name, [view_of(z, labels, HEADS["linear"], torch.zeros(23))])
    nothing = {
        "spectrum": {"significant_values": math.nan, "zero_variance_share": math.nan, "spectrum": [None] * DIM},
        "nc_error": {"nc_error": math.nan, "nc_error_centred": math.nan},
        "classes": {
            "worst_class_accuracy": math.nan,
            "class_accuracy": [None] * CLASSES,
            "confusion": [[0] * CLASSES] * CLASSES,
        },
        "calibration": {
            "ece": math.nan,
            "calibration": {"confidence": [None] * 15, "accuracy": [None] * 15, "count": [0] * 15},
        },
        "class_means": {"class_cosines": [[None] * CLASSES] * CLASSES},
    }
    assert same(found, nothing[name])


@pytest.mark.parametrize("name", [*NAMES, "erank_feature", "nc1", "nc2"])
def test_a_model_that_diverged_is_measured_without_an_error(name):
    z, labels = draw()
    found = measure(name, [view_of(torch.where(labels[:, None] == 1, math.nan, z), labels, HEADS["linear"])])
    numbers = [value for value in found.values() if isinstance(value, float)]
    assert name == "classes" or all(math.isnan(value) for value in numbers)


def test_features_of_an_etf_are_collapsed_in_every_space():
    labels = torch.arange(CLASSES).repeat(4)
    etf = simplex_etf(DIM, CLASSES, dtype=torch.float64).T
    for offset, cosines in ((0.0, True), (2.0, False)):
        view = view_of(3 * etf[labels] + offset, labels, HEADS["linear"])
        error = measure("nc_error", [view])
        assert error["nc_error_centred"] == pytest.approx(0, abs=1e-12)
        assert (error["nc_error"] < 1e-12) is cosines
        wanted = [[1.0 if a == b else -1 / (CLASSES - 1) for b in range(CLASSES)] for a in range(CLASSES)]
        assert same(measure("class_means", [view])["class_cosines"], wanted)


def test_the_comparisons_notice_another_space_and_another_prediction():
    z, labels = draw()
    view = view_of(z, labels, HEADS["projector"])
    found = measure("nc_error", [view])
    for wrong in ({"unit": False}, {"projected": z.numpy()}):
        assert not same(found, reference("nc_error", view, **wrong), 1e-4), wrong
    turned = replace(view.output, logits=view.logits.roll(1, 1))
    for name in ("classes", "calibration"):
        assert not same(measure(name, [replace(view, output=turned)]), reference(name, view), 1e-4)


@pytest.mark.parametrize("head", HEADS)
def test_classes_of_zero_vectors_and_classes_at_the_centre_have_no_direction(head):
    z, labels = torch.zeros(6, DIM, dtype=torch.float64), torch.arange(6) % CLASSES
    z[labels == 1, 0], z[labels == 2, 0] = 2.0, -2.0
    view = view_of(z, labels, HEADS[head])
    assert same(measure("nc_error", [view]), reference("nc_error", view))
    cosines = measure("class_means", [view])["class_cosines"]
    assert same(cosines, [[None, None, None], [None, 1.0, -1.0], [None, -1.0, 1.0]])
