"""Drift equals a loop over clients and pairs of them, on parameters laid out in a row."""

import math
from dataclasses import replace

import pytest
import torch

from fedblade.heads import EtfProjectorHead, LinearHead
from support.trained_clients import (
    assert_found,
    assert_vmap_is_one_by_one,
    cosine,
    draw,
    federation,
    find,
    mean,
    moved,
    pairs,
)

KEYS = ("drift_norm", "drift_relative", "update_cosine")


def flat(fed, params):
    return torch.cat([params[name].flatten() for name in sorted(fed.anchor) if name in fed.shared])


def length(row):
    return math.sqrt(sum(x * x for x in row.tolist()))


def reference(fed):
    anchor = flat(fed, fed.anchor)
    updates = [flat(fed, client.params) - anchor for client in fed.clients]
    norm = mean(length(each) for each in updates)
    cosines = mean(cosine(a, b) for a, b in pairs(updates))
    return dict(zip(KEYS, (norm, norm / length(anchor), cosines), strict=True))


@pytest.mark.parametrize("head", [LinearHead(), EtfProjectorHead()])
@pytest.mark.parametrize("seed", range(3))
def test_drift_is_that_of_the_flattened_updates(head, seed):
    fed = federation(head, seed=seed)
    assert_found(find("drift", fed), reference(fed))


def test_only_what_travels_counts():
    fed = federation()
    part = replace(fed, shared=frozenset({"head.weight", "body.running_mean"}))
    assert_found(find("drift", part), reference(part))
    assert find("drift", part)["drift_norm"] < find("drift", fed)["drift_norm"]
    nothing = replace(fed, shared=frozenset())
    assert all(math.isnan(value) for value in find("drift", nothing).values())


def test_known_directions():
    fed = federation(held=([1, 0, 0, 0, 0],) * 3)
    step = {name: draw(*leaf.shape, seed=8) for name, leaf in fed.anchor.items()}

    def at(factor, client):
        return replace(client, params={name: leaf + factor * step[name] for name, leaf in fed.anchor.items()})

    for factors, expected in (((1, 2, 5), 1.0), ((1, -3), -1.0), ((1, 1, -1), -1 / 3), ((1, 0, 2), 1 / 3)):
        clients = [at(factor, client) for factor, client in zip(factors, fed.clients, strict=False)]
        assert find("drift", replace(fed, clients=clients))["update_cosine"] == pytest.approx(expected)


def test_one_client_has_no_pair():
    fed = federation(held=([1, 2, 0, 0, 0],))
    found = find("drift", fed)
    assert_found(found, reference(fed))
    assert math.isnan(found["update_cosine"])
    assert found["drift_norm"] > 0


def test_clients_that_stayed_where_they_were():
    fed = federation()
    still = replace(fed, clients=[replace(each, params=fed.anchor) for each in fed.clients])
    assert find("drift", still) == dict.fromkeys(KEYS, 0.0)
    origin = {name: torch.zeros_like(leaf) for name, leaf in fed.anchor.items()}
    lost = replace(fed, anchor=origin, clients=[replace(each, params=moved(origin, 3)) for each in fed.clients])
    assert math.isnan(find("drift", lost)["drift_relative"])


def test_all_clients_at_once():
    assert_vmap_is_one_by_one("drift", federation())
    assert_vmap_is_one_by_one("drift", replace(federation(), shared=frozenset({"head.bias"})))
