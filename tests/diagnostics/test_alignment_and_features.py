"""Alignment and feature drift equal a loop over clients and test samples."""

import math
from dataclasses import replace

import pytest
import torch

from fedblade.core.registry import metrics
from fedblade.heads import EtfDirectHead, EtfProjectorHead, LinearHead
from support.trained_clients import (
    assert_found,
    assert_vmap_is_one_by_one,
    cosine,
    degrees,
    features,
    federation,
    find,
    mean,
    projected,
    with_params,
)

HEADS = [LinearHead(), EtfDirectHead(), EtfProjectorHead(proj_dim=7)]
NAMES = ("alignment", "feature_drift")


def vectors(fed, params):
    return fed.fixed["etf"].T if "etf" in fed.fixed else params["head.weight"]


def over_sides(fed, names, numbers):
    """Means over the samples of a side, then over the clients that have such samples."""
    found = {}
    for place, name in enumerate(names):
        for side in ("observed", "unobserved"):
            values = []
            for client in fed.clients:
                held = set(client.labels.tolist())
                rows = [
                    numbers(client, x[None], y)[place]
                    for x, y in zip(fed.inputs, fed.labels.tolist(), strict=True)
                    if (y in held) == (side == "observed")
                ]
                values += [mean(rows)] if rows else []
            found[f"{name}_{side}"] = mean(values)
    return found


def reference_alignment(fed):
    def numbers(client, x, y):
        after = cosine(projected(fed, client.params, x)[0], vectors(fed, client.params)[y])
        return after, after - cosine(projected(fed, fed.anchor, x)[0], vectors(fed, fed.anchor)[y])

    return over_sides(fed, ("alignment", "alignment_gap"), numbers)


def reference_features(fed):
    def numbers(client, x, y):
        a, b = features(client.params, x)[0], features(fed.anchor, x)[0]
        return math.sqrt(sum(each * each for each in (a - b).tolist())), degrees(a, b)

    return over_sides(fed, ("feature_distance", "feature_angle"), numbers)


REFERENCES = {"alignment": reference_alignment, "feature_drift": reference_features}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("seed", range(2))
def test_metrics_are_loops_over_samples(name, head, seed):
    fed = federation(head, seed=seed)
    assert_found(find(name, fed), REFERENCES[name](fed))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("held", [([1, 1, 1, 1, 1],), ([2, 0, 0, 0, 0],), ([1, 1, 1, 1, 1], [0, 3, 0, 0, 0])])
def test_clients_count_only_on_sides_they_have(name, held):
    fed = federation(held=held)
    found = find(name, fed)
    assert_found(found, REFERENCES[name](fed))
    everything = all(all(row) for row in held)
    assert {key.split("_")[-1] for key, value in found.items() if math.isnan(value)} == (
        {"unobserved"} if everything else set()
    )


@pytest.mark.parametrize("name", NAMES)
def test_classes_without_test_samples(name):
    fed = federation()
    few = replace(fed, labels=fed.labels % 2)
    assert_found(find(name, few), REFERENCES[name](few))


@pytest.mark.parametrize("head", HEADS)
def test_an_unchanged_model_has_neither_gap_nor_drift(head):
    fed = federation(head)
    still = replace(fed, clients=[replace(each, params=fed.anchor) for each in fed.clients])
    found = find("alignment", still) | find("feature_drift", still)
    assert all(abs(value) < 1e-12 for key, value in found.items() if "gap" in key or key.startswith("feature"))


def test_collapsed_features_are_aligned():
    fed = federation(EtfDirectHead())
    vector = fed.fixed["etf"][:, 0]
    aligned = with_params(fed, 2, body__weight=torch.outer(torch.atanh(0.1 * vector), torch.eye(4)[0].double()))
    one = replace(
        aligned, clients=[aligned.clients[2]], inputs=torch.eye(4)[[0, 0]].double(), labels=torch.tensor([0, 3])
    )
    found = find("alignment", one)
    assert found["alignment_unobserved"] == pytest.approx(1)
    assert found["alignment_observed"] == pytest.approx(-0.25)


@pytest.mark.parametrize("name", NAMES)
def test_zero_features_have_no_direction(name):
    fed = federation()
    dead = with_params(fed, 1, body__weight=torch.zeros_like(fed.anchor["body.weight"]))
    assert_found(find(name, dead), REFERENCES[name](dead))
    nothing = replace(dead, anchor=dead.clients[1].params, clients=dead.clients[1:2])
    found = find(name, nothing)
    assert_found(found, REFERENCES[name](nothing))
    assert found.get("feature_angle_observed", 90) == 90
    assert found.get("feature_distance_observed", 0) == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("head", HEADS)
def test_all_clients_at_once(name, head):
    assert_vmap_is_one_by_one(name, federation(head))


@pytest.mark.parametrize("name", NAMES)
def test_passes_see_the_received_model(name):
    (declared,) = metrics.get(name).make().local
    assert [each.anchored for each in declared.measured] == [True]
    assert not declared.passes


def test_the_class_a_client_does_without_has_a_side_of_its_own():
    fed = federation(EtfDirectHead())
    erased = [-1, 0, 3, 2]
    found = find(
        "alignment", replace(fed, clients=[replace(c, erased=e) for c, e in zip(fed.clients, erased, strict=True)])
    )
    wanted = []
    for client, without in list(zip(fed.clients, erased, strict=True))[1:]:
        values = [
            cosine(projected(fed, client.params, x[None])[0], vectors(fed, client.params)[y])
            for x, y in zip(fed.inputs, fed.labels.tolist(), strict=True)
            if y == without
        ]
        wanted.append(mean(values))
    assert math.isclose(found["alignment_erased"], mean(wanted), rel_tol=1e-9)
    assert "alignment_erased" not in find("alignment", fed)
