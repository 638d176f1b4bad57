"""Consistency of prototypes and classifiers equals a loop over pairs of clients."""

import math
from dataclasses import replace

import pytest
import torch

from fedblade.heads import EtfProjectorHead, LinearHead
from support.trained_clients import (
    CLASSES,
    assert_found,
    assert_vmap_is_one_by_one,
    cosine,
    features,
    federation,
    find,
    mean,
    pairs,
    with_params,
)

HEADS = [LinearHead(), EtfProjectorHead(proj_dim=7)]


def reference_prototypes(fed):
    by_class = []
    for label in range(CLASSES):
        own = []
        for client in fed.clients:
            rows = [
                features(client.params, x[None])[0]
                for x, y in zip(client.inputs, client.labels, strict=True)
                if y == label
            ]
            if rows:
                own.append(sum(rows) / len(rows))
        if len(own) > 1:
            by_class.append(mean(cosine(a, b) for a, b in pairs(own)))
    return {"prototype_consistency": mean(by_class)}


def reference_classifiers(fed):
    weights = [client.params["head.weight"].flatten() for client in fed.clients]
    return {"classifier_consistency": mean(cosine(a, b) for a, b in pairs(weights))}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("seed", range(3))
def test_prototypes_are_compared_by_class(head, seed):
    fed = federation(head, seed=seed)
    assert_found(find("prototype_consistency", fed), reference_prototypes(fed))


@pytest.mark.parametrize("seed", range(3))
def test_classifiers_are_compared_as_single_vectors(seed):
    fed = federation(seed=seed)
    assert_found(find("classifier_consistency", fed), reference_classifiers(fed))
    assert abs(reference_classifiers(fed)["classifier_consistency"]) < 0.99


def test_fixed_class_vectors_are_the_same_everywhere():
    assert find("classifier_consistency", federation(EtfProjectorHead()))["classifier_consistency"] == pytest.approx(1)


def test_equal_clients_agree_and_opposite_ones_do_not():
    fed = federation(held=([2, 0, 1, 0, 0],) * 2)
    one = fed.clients[0]
    same = replace(fed, clients=[one, one])
    assert find("prototype_consistency", same)["prototype_consistency"] == pytest.approx(1)
    assert find("classifier_consistency", same)["classifier_consistency"] == pytest.approx(1)
    against = with_params(same, 1, body__weight=-one.params["body.weight"], head__weight=-one.params["head.weight"])
    assert find("prototype_consistency", against)["prototype_consistency"] == pytest.approx(-1)
    assert find("classifier_consistency", against)["classifier_consistency"] == pytest.approx(-1)


def test_one_holder_has_nobody_to_agree_with():
    alone = federation(held=([3, 2, 0, 0, 0],))
    assert math.isnan(find("prototype_consistency", alone)["prototype_consistency"])
    assert math.isnan(find("classifier_consistency", alone)["classifier_consistency"])
    disjoint = federation(held=([3, 2, 0, 0, 0], [0, 0, 2, 1, 4]))
    assert math.isnan(find("prototype_consistency", disjoint)["prototype_consistency"])
    assert math.isfinite(find("classifier_consistency", disjoint)["classifier_consistency"])


def test_a_zero_prototype_has_cosine_zero_and_counts_as_a_holder():
    fed = federation(held=([2, 0, 0, 0, 0], [1, 0, 0, 0, 0], [3, 0, 0, 0, 0]))
    dead = with_params(fed, 1, body__weight=torch.zeros_like(fed.anchor["body.weight"]))
    found = find("prototype_consistency", dead)["prototype_consistency"]
    two = find("prototype_consistency", replace(fed, clients=[fed.clients[0], fed.clients[2]]))
    assert found == pytest.approx(two["prototype_consistency"] / 3)
    assert_found(find("prototype_consistency", dead), reference_prototypes(dead))
    silent = with_params(fed, 1, head__weight=torch.zeros_like(fed.anchor["head.weight"]))
    assert_found(find("classifier_consistency", silent), reference_classifiers(silent))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", ["prototype_consistency", "classifier_consistency"])
def test_all_clients_at_once(name, head):
    assert_vmap_is_one_by_one(name, federation(head))
