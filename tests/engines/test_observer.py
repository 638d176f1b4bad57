"""What diagnostics see of trained clients: alike for every engine, and as a plain loop over clients finds it."""

from dataclasses import replace

import pytest
import torch

from fedblade.core import received_features
from fedblade.core.client_diagnostics import DiagnosticRequest, DiagnosticSums
from fedblade.core.one_client import OneClient, receive
from fedblade.core.one_client import train_alone as train
from fedblade.core.received_features import ReceivedFeatures
from fedblade.core.registry import engines
from fedblade.core.state import MemoryStore
from fedblade.core.sums import DataPass, Sum
from fedblade.core.views import Teacher
from support.conformance import LR
from support.small_federation import BATCH_NORM, CNN, build, images, tasks

FEATURES = received_features._features
METHODS = ("fedavg", "fedblade", "fedrep", "fedbn", "scaffold", "feddr_plus", "local_ce")


def real(view):
    return torch.ones_like(view.features[:, 0]) if view.mask is None else view.mask.to(view.features.dtype)


def mean_features(view):
    return {"total": (view.features * real(view)[:, None]).sum(0), "count": real(view).sum()}


def moved(view):
    """How far features and logits are from what the received model says."""
    before, weight = view.teachers[Teacher()], real(view)
    return {
        "features": ((view.features - before.features).norm(dim=1) * weight).sum(),
        "logits": ((view.logits - before.output.logits).norm(dim=1) * weight).sum(),
        "anchor": sum(leaf.double().sum() for leaf in view.anchor.values()) * weight.sum(),
    }


OWN, MEASURED, MOVED = (
    DataPass("own", mean_features),
    DataPass("measured", mean_features),
    DataPass("moved", moved, anchored=True),
)


def seen(view):
    """Something of everything a diagnostic may look at."""
    return {
        "drift": sum((view.params[name] - view.anchor[name]).double().square().sum() for name in view.params),
        "held": (view.counts > 0).double(),
        "own": view.passes["own"]["total"] / view.passes["own"]["count"],
        "measured": view.passes["measured"]["total"] / view.passes["measured"]["count"],
        "moved": torch.stack([view.passes["moved"][name] for name in ("features", "logits", "anchor")]),
        "clients": torch.ones(()),
    }


EVERY = Sum("seen", seen, bound=1e9, passes=(OWN,), measured=(MEASURED, MOVED))
FIRST = Sum("first", lambda view: view.passes["measured"], bound=1e9, measured=(MEASURED,))


def diagnostics(setup):
    return DiagnosticRequest((EVERY,), (FIRST,), setup.test, setup.test_order)


def observed(setup, name, cohort=None):
    engine = engines.get(name).make(setup.problem)
    chosen = tasks(setup) if cohort is None else cohort
    return engine.train(setup.start, iter(chosen), MemoryStore(), LR, lambda client: None, diagnostics(setup)).observed


@pytest.mark.parametrize("model", [BATCH_NORM, CNN], ids=["norm", "cnn"])
@pytest.mark.parametrize("method", METHODS)
def test_engines_see_the_same(method, model):
    setup = build(method, images(60, 23) if model is CNN else None, dtype="float64", **model)
    found, wanted = (observed(setup, name).totals() for name in ("stacked", "sequential"))
    assert found.keys() == wanted.keys() == {"seen", "first"}
    for name, tree in wanted.items():
        for key, leaf in tree.items():
            torch.testing.assert_close(found[name][key], leaf, rtol=1e-9, atol=1e-9, msg=f"{name}.{key}")


def test_a_plain_loop_over_clients_finds_the_same():
    setup = build("fedavg", dtype="float64", **BATCH_NORM)
    inputs, _ = setup.test.batch(setup.test_order)
    means, drifts = [], []
    for task in tasks(setup):
        received = receive(setup.problem, setup.start, task, None, LR)
        row, _ = train(setup.problem, received)
        network = setup.problem.network
        means.append(network.features(row.params, row.buffers, inputs, training=False).mean(0))
        drifts.append(sum((row.params[name] - received.anchor[name]).square().sum() for name in row.params))
    totals = observed(setup, "sequential").totals()
    torch.testing.assert_close(totals["seen"]["measured"], sum(means))
    torch.testing.assert_close(totals["seen"]["drift"], sum(drifts).double())
    torch.testing.assert_close(totals["first"]["total"] / totals["first"]["count"], means[0])


@pytest.mark.parametrize("name", ["sequential", "stacked"])
def test_the_received_model_passes_the_samples_once_for_all_clients(name, monkeypatch):
    setup, computed = build("fedavg", dtype="float64", **BATCH_NORM), []
    monkeypatch.setattr(received_features, "_features", lambda *args: computed.append(args[3]) or FEATURES(*args))
    observed(setup, name)
    assert torch.equal(torch.cat(computed), setup.test_order)


def test_engines_see_the_same_where_clients_received_different_bodies():
    setup, totals = build("fedbn", dtype="float64", **BATCH_NORM), []
    for name in ("stacked", "sequential"):
        engine, store = engines.get(name).make(setup.problem), MemoryStore()
        for round_ in range(2):
            again = iter([setup.planner.task(round_, int(client)) for client in setup.cohorts[0]])
            server = setup.start.replace(round=round_)
            result = engine.train(server, again, store, LR, lambda client: None, diagnostics(setup))
        totals.append(result.observed.totals()["seen"])
    for key, leaf in totals[0].items():
        torch.testing.assert_close(leaf, totals[1][key], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("moved_by", [0.0, 1e-7])
def test_features_of_another_received_model_are_computed_anew(moved_by):
    setup = build("fedavg", dtype="float64", **BATCH_NORM)
    client, kept = OneClient(setup.problem), ReceivedFeatures()
    received = receive(setup.problem, setup.start, tasks(setup)[0], None, LR)
    other = replace(received, anchor={name: leaf + moved_by for name, leaf in received.anchor.items()})
    first, second = (kept.at(client, each, setup.test, setup.test_order) for each in (received, other))
    assert (second is first) == (moved_by == 0)
    for each, found in ((received, first), (other, second)):
        inputs, _ = setup.test.batch(setup.test_order)
        expected = setup.problem.network.features(each.anchor, each.buffers, inputs, training=False)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_features_that_would_fill_the_memory_are_not_kept(monkeypatch):
    setup = build("fedavg", dtype="float64", **BATCH_NORM)
    wanted = observed(setup, "stacked").totals()
    monkeypatch.setattr(received_features, "_MOST_BYTES", 1)
    client, received = OneClient(setup.problem), receive(setup.problem, setup.start, tasks(setup)[0], None, LR)
    assert ReceivedFeatures().at(client, received, setup.test, setup.test_order) is None
    for name, tree in observed(setup, "stacked").totals().items():
        for key, leaf in tree.items():
            torch.testing.assert_close(leaf, wanted[name][key], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["sequential", "stacked"])
def test_the_first_client_is_the_one_with_the_lowest_id_that_trains(name):
    setup = build("fedavg", dtype="float64", **BATCH_NORM)
    cohort = tasks(setup)
    whole, alone = observed(setup, name, cohort), observed(setup, name, cohort[:1])
    for key, leaf in alone.first["first"].items():
        torch.testing.assert_close(whole.first["first"][key], leaf, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["sequential", "stacked"])
def test_watching_changes_nothing_and_takes_its_own_time(name):
    setup = build("fedblade", dtype="float64", lambda_decorr=1e-4, **BATCH_NORM)
    engine = engines.get(name).make(setup.problem)
    plain, watched = (
        engine.train(setup.start, iter(tasks(setup)), MemoryStore(), LR, lambda client: None, each)
        for each in (None, diagnostics(setup))
    )
    assert plain.bytes_up == watched.bytes_up
    assert plain.observed == DiagnosticSums()
    assert watched.observed.seconds > 0
    for key, tree in plain.sums.trees.items():
        for leaf_name, leaf in tree.items():
            assert torch.equal(watched.sums[key][leaf_name], leaf)
