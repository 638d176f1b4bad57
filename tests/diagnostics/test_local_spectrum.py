"""The local spectrum is that of the first client's features, and its ratio to the global one that of FedDecorr."""

import math
from dataclasses import replace

import pytest
import torch

from fedblade.core.registry import metrics
from support.trained_clients import assert_vmap_is_one_by_one, features, federation, find, with_params


def eigenvalues(z):
    """Of the covariance, from an outer product per sample."""
    centred = z - sum(z) / len(z)
    covariance = sum(torch.outer(row, row) for row in centred) / len(z)
    return sorted(torch.linalg.eigvalsh(covariance).tolist(), reverse=True)


@pytest.mark.parametrize("seed", range(3))
def test_the_spectrum_is_the_first_client_s(seed):
    fed = federation(seed=seed)
    found = find("local_spectrum", fed)
    assert found.keys() == {"local_spectrum"}
    assert found["local_spectrum"] == pytest.approx(eigenvalues(features(fed.clients[0].params, fed.inputs)), abs=1e-12)
    others = replace(fed, clients=fed.clients[1:])
    assert find("local_spectrum", others)["local_spectrum"] != pytest.approx(found["local_spectrum"], rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_the_ratio_compares_the_client_with_what_came_of_all(seed):
    fed = federation(seed=seed)
    spectra = [eigenvalues(features(params, fed.inputs)) for params in (fed.clients[0].params, fed.after)]
    logs = [math.log(max(a, 1e-12)) - math.log(max(b, 1e-12)) for a, b in zip(*spectra, strict=True)]
    found = find("spectrum_ratio", fed)
    assert found["spectrum_ratio"] == pytest.approx(sum(logs) / len(logs), rel=1e-6)
    assert found["spectrum_ratio_floored"] == 0


def test_an_unchanged_spectrum_and_a_dead_one():
    fed = federation()
    same = replace(fed, after=fed.clients[0].params)
    assert find("spectrum_ratio", same) == {"spectrum_ratio": 0.0, "spectrum_ratio_floored": 0.0}
    dead = with_params(fed, 0, body__weight=torch.zeros_like(fed.anchor["body.weight"]))
    found = find("spectrum_ratio", dead)
    assert found["spectrum_ratio_floored"] == len(fed.anchor["body.weight"])
    assert found["spectrum_ratio"] < -5
    assert find("local_spectrum", dead)["local_spectrum"] == [0.0] * len(fed.anchor["body.weight"])


@pytest.mark.parametrize("name", ["local_spectrum", "spectrum_ratio"])
def test_one_client_serves_both(name):
    metric = metrics.get(name).make()
    assert metric.clients == "first"
    assert metric.local == metrics.get("local_spectrum").make().local
    assert_vmap_is_one_by_one(name, federation())
