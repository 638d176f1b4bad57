"""Angles of existing and missing classes equal a loop over clients and pairs of classes."""

import math
from dataclasses import replace

import pytest
import torch

from fedblade.diagnostics._vectors import angle, angle_matrix
from fedblade.heads import EtfDirectHead, EtfProjectorHead, LinearHead
from support.trained_clients import (
    CLASSES,
    DIM,
    assert_found,
    assert_vmap_is_one_by_one,
    degrees,
    draw,
    features,
    federation,
    find,
    mean,
    pairs,
    with_params,
)

ETF_ANGLE = math.degrees(math.acos(-1 / (CLASSES - 1)))


def sides(client):
    held = set(client.labels.tolist())
    return {"existing": sorted(held), "missing": [c for c in range(CLASSES) if c not in held]}


def reference_classifiers(fed):
    found = {}
    for where in ("local", "global"):
        for side in ("existing", "missing"):
            values = []
            for client in fed.clients:
                vectors = (client.params if where == "local" else fed.after)["head.weight"]
                chosen = pairs(sides(client)[side])
                if chosen:
                    values.append(mean(degrees(vectors[a], vectors[b]) for a, b in chosen))
            found[f"angle_{side}_{where}"] = mean(values)
    return found


def class_means(fed, params):
    """Mean unit feature of each class that has test samples."""
    units = {}
    for x, y in zip(fed.inputs, fed.labels.tolist(), strict=True):
        z = features(params, x[None])[0]
        units.setdefault(y, []).append(z / z.norm())
    return {label: sum(rows) / len(rows) for label, rows in units.items()}


def reference_means(fed):
    found = {}
    for side in ("existing", "missing"):
        values = []
        for client in fed.clients:
            means = class_means(fed, client.params)
            chosen = pairs(c for c in sides(client)[side] if c in means)
            if chosen:
                values.append(mean(degrees(means[a], means[b]) for a, b in chosen))
        found[f"class_mean_angle_{side}"] = mean(values)
    means = class_means(fed, fed.after)
    return found | {"class_mean_angle_all": mean(degrees(means[a], means[b]) for a, b in pairs(means))}


@pytest.mark.parametrize("seed", range(3))
def test_classifier_angles_are_means_over_pairs_then_clients(seed):
    fed = federation(seed=seed)
    assert_found(find("classifier_angles", fed), reference_classifiers(fed))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("head", [LinearHead(), EtfProjectorHead(proj_dim=7)])
def test_class_mean_angles_are_those_of_unit_features(head, seed):
    fed = federation(head, seed=seed)
    assert_found(find("class_mean_angles", fed), reference_means(fed))


@pytest.mark.parametrize("head", [EtfDirectHead(length=3.0), EtfProjectorHead(proj_dim=7), LinearHead(start="etf")])
def test_an_etf_has_equal_angles(head):
    fed = federation(head)
    if isinstance(head, LinearHead):
        fed = replace(fed, clients=[replace(each, params=fed.anchor) for each in fed.clients], after=fed.anchor)
    assert_found(find("classifier_angles", fed), dict.fromkeys(reference_names(), ETF_ANGLE), 1e-6)


def reference_names():
    return [f"angle_{side}_{where}" for where in ("local", "global") for side in ("existing", "missing")]


@pytest.mark.parametrize(
    ("held", "defined"),
    [
        (([3, 0, 0, 0, 0],), {"missing"}),
        (([1, 1, 1, 1, 0],), {"existing"}),
        (([1, 1, 1, 1, 1], [2, 2, 2, 2, 2]), {"existing"}),
        (([1, 1, 1, 0, 0],), {"existing", "missing"}),
    ],
)
def test_a_side_without_a_pair_is_nan(held, defined):
    fed = federation(held=held)
    classifiers, means = find("classifier_angles", fed), find("class_mean_angles", fed)
    assert_found(classifiers, reference_classifiers(fed))
    assert_found(means, reference_means(fed))
    assert {key.split("_")[1] for key, value in classifiers.items() if not math.isnan(value)} == defined
    assert {key.split("_")[-1] for key, value in means.items() if not math.isnan(value)} == defined | {"all"}


def test_clients_without_a_pair_are_left_out_of_the_mean():
    both = federation(held=([1, 1, 0, 0, 0], [4, 0, 0, 0, 0]))
    first = replace(both, clients=both.clients[:1])
    for key in ("angle_existing_local", "angle_existing_global"):
        assert find("classifier_angles", both)[key] == find("classifier_angles", first)[key]


def test_classes_without_test_samples_have_no_mean():
    fed = federation()
    few = replace(fed, labels=fed.labels % 3)
    assert_found(find("class_mean_angles", few), reference_means(few))
    one = replace(fed, labels=fed.labels * 0)
    assert all(math.isnan(value) for value in find("class_mean_angles", one).values())


def test_a_zero_vector_is_at_right_angles():
    fed = federation(held=([1, 1, 0, 0, 0],))
    dead = with_params(fed, 0, head__weight=torch.zeros(CLASSES, DIM, dtype=torch.float64))
    assert find("classifier_angles", dead)["angle_existing_local"] == pytest.approx(90)
    silent = with_params(fed, 0, body__weight=torch.zeros_like(fed.anchor["body.weight"]))
    assert find("class_mean_angles", silent)["class_mean_angle_existing"] == pytest.approx(90)


@pytest.mark.parametrize("name", ["classifier_angles", "class_mean_angles"])
@pytest.mark.parametrize("head", [LinearHead(), EtfProjectorHead(proj_dim=7)])
def test_all_clients_at_once(name, head):
    assert_vmap_is_one_by_one(name, federation(head))


def test_angles_of_vectors():
    a, b = draw(8, 5), draw(8, 5, seed=1)
    for row in range(8):
        assert float(angle(a, b)[row]) == pytest.approx(degrees(a[row], b[row]))
        assert float(angle_matrix(a)[0, row]) == pytest.approx(degrees(a[0], a[row]), abs=1e-5)
    assert (angle(a, 3 * a) <= 1e-13).all()
    assert (angle(a, -a) >= 180 - 1e-13).all()
    zero = torch.zeros_like(a)
    for pair in ((a, zero), (zero, a), (zero, zero)):
        assert (angle(*pair) == 90).all()
    tiny = torch.tensor([1.0, 1e-9], dtype=torch.float64)
    assert float(angle(tiny, torch.tensor([1.0, 0.0], dtype=torch.float64))) == pytest.approx(math.degrees(1e-9))
