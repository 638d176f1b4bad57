"""Local-only training, three times."""

import numpy as np
import pytest
import torch

import support.plain_torch as plain
from fedblade.core.problem import BUFFERS, PERSONAL
from fedblade.heads import simplex_etf
from fedblade.runs import Driver, RunListener
from support.small_federation import (
    BATCH_NORM,
    NUM_CLASSES,
    assert_close,
    assert_different,
    assert_same_bits,
    build,
    train,
    vectors,
)

METHODS = ["local_ce", "local_ce_etf", "local_dr"]
LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}
MATCHED = {"dataset.test_split": "matched"}


def kept(ran, client):
    """A client's parameters and statistics."""
    state = ran.driver._store.get(client, ran.state.round)
    return state[PERSONAL], state.get(BUFFERS, {})


def dot_regression(layers, buffers, x, y, V):
    def loss(params, indices):
        z = plain.features(layers, params, buffers, x[indices], training=True)
        cosines = torch.nn.functional.cosine_similarity(z, V.T[y[indices]], dim=1)
        return (0.5 * (cosines - 1) ** 2).mean()

    return loss


def alone(setup, method, norm, client, rounds, freeze=False):
    """One client that trains on and on; momentum starts anew in every round, as for any method."""
    samples, start = setup.problem.samples, setup.start
    params, own = dict(start.params), {n: v.clone() for n, v in start.buffers.items()}
    for round_ in range(rounds):
        task = setup.planner.task(round_, client)
        if method == "local_dr":
            loss = dot_regression(LAYERS[norm], own, samples.inputs, samples.labels, start.fixed["etf"])
        else:
            loss = plain.cross_entropy(LAYERS[norm], own, samples.inputs, samples.labels)
        still = {n: v for n, v in params.items() if freeze and n.startswith("head.")}
        moving = {n: v for n, v in params.items() if n not in still}
        trained = plain.local_sgd(
            lambda p, i, loss=loss, still=still: loss(p | still, i),
            moving,
            [b.indices for b in task.phases[0]],
            0.05 * 0.1 ** (int(2 * round_ >= rounds) + int(4 * round_ >= 3 * rounds)),
            0.9,
            1e-3,
        )
        params = trained | still
    return params, own


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize(("method", "knobs"), [*((m, {}) for m in METHODS), ("local_ce_etf", {"freeze": True})])
def test_every_client_trains_alone_for_rounds_times_epochs(method, knobs, norm):
    """In every round, whatever the cohort, at the rates of the run."""
    settings = {"rounds": 3, "clients_per_round": 1, "optimizer.schedule": "step", "model.norm": norm}
    ran = train(method, **knobs, **settings)
    assert [row["clients"] for row in ran.history] == [[0, 1, 2, 3]] * 3
    for client in range(4):
        params, buffers = kept(ran, client)
        expected, statistics = alone(ran.setup, method, norm, client, 3, knobs.get("freeze", False))
        # the frame of dot regression is stored in float32; both sides normalise it
        assert_close(params, expected, 1e-9)
        assert_close(buffers, statistics, 1e-9)


def disturbed(method, client):
    """The same run with other inputs and labels for one client."""
    setup = build(method, **BATCH_NORM)
    held = torch.from_numpy(np.ascontiguousarray(setup.clients.train.indices(client, 0)))
    samples = setup.problem.samples
    samples.inputs[held] = 3 * samples.inputs[held].flip(0) + 1
    samples.labels[held] = (samples.labels[held] + 1) % NUM_CLASSES
    driver = Driver(setup, None, RunListener())
    driver.run()
    return driver


@pytest.mark.parametrize("method", METHODS)
def test_no_parameter_depends_on_another_client(method):
    ran, other = train(method, **BATCH_NORM), disturbed(method, 2)
    for client in range(4):
        a, b = (source._store.get(client, 2) for source in (ran.driver, other))
        compare = assert_different if client == 2 else assert_same_bits
        compare(a[PERSONAL], b[PERSONAL])
        compare(a[BUFFERS], b[BUFFERS])


@pytest.mark.parametrize("method", METHODS)
def test_nothing_travels_and_the_server_keeps_the_start(method):
    ran = train(method, rounds=3, **BATCH_NORM)
    for row in ran.history:
        assert (row["bytes_up"], row["bytes_down"]) == (0, 0)
    assert_same_bits(ran.state.params, ran.setup.start.params)
    assert_same_bits(ran.state.buffers, ran.setup.start.buffers)
    assert_same_bits(ran.state.fixed, ran.setup.start.fixed)
    assert ran.setup.problem.shared == frozenset()


def accuracy(ran, method, client, indices):
    params, buffers = kept(ran, client)
    samples = ran.setup.test
    z = plain.features(plain.MLP_BATCH_NORM, params, {**buffers}, samples.inputs[indices], training=False)
    logits = (
        z @ ran.state.fixed["etf"] if method == "local_dr" else z @ params["head.weight"].T + params["head.bias"]
    )  # fmt: skip
    return 100 * (logits.argmax(1) == samples.labels[indices]).double().mean().item()


@pytest.mark.parametrize("method", METHODS)
def test_accuracy_is_that_of_the_clients_own_models(method):
    """On the shared test set, unweighted, and on each client's own part of it."""
    ran = train(method, vectors(150, 100), **BATCH_NORM, **MATCHED)
    last = ran.history[-1]
    everywhere = [accuracy(ran, method, k, torch.arange(100)) for k in range(4)]
    assert last["test_accuracy"] == pytest.approx(np.mean(everywhere), abs=1e-10)
    mine = [accuracy(ran, method, k, torch.from_numpy(ran.setup.clients.part(k))) for k in range(4)]
    assert last["personal_accuracy"] == pytest.approx(np.mean(mine), abs=1e-10)
    assert [row["accuracy"] for row in ran.driver.clients] == pytest.approx(mine, abs=1e-10)
    assert len(set(mine)) > 1


def test_the_etf_head_starts_as_a_frame_without_bias_and_trains():
    ran = train("local_ce_etf")
    start = ran.setup.start.params
    frame = simplex_etf(16, NUM_CLASSES, seed=3).T.double()
    assert torch.equal(start["head.weight"], frame)
    assert torch.equal(start["head.bias"], torch.zeros(NUM_CLASSES, dtype=torch.float64))
    for name in ("head.weight", "head.bias"):
        assert not torch.equal(kept(ran, 0)[0][name], start[name])


def test_a_frozen_etf_head_stays():
    ran = train("local_ce_etf", freeze=True, rounds=3)
    for client in range(4):
        params, _ = kept(ran, client)
        head = {n: v for n, v in params.items() if n.startswith("head.")}
        assert_same_bits(head, {n: ran.setup.start.params[n] for n in head})
        assert not torch.equal(params["body.layers.0.weight"], ran.setup.start.params["body.layers.0.weight"])


def test_the_frame_of_dot_regression_is_no_parameter():
    ran = train("local_dr")
    assert set(ran.state.fixed) == {"etf"}
    assert all(name.startswith("body.") for name in kept(ran, 0)[0])


@pytest.mark.parametrize(("method", "like"), [("local_ce", "fedavg"), ("local_dr", "dotreg")])
def test_a_federation_of_one_is_local_training(method, like):
    """With a single client averaging changes nothing, so the federated method is the local one."""
    settings = {"num_clients": 1, "clients_per_round": 1, "partition": "iid", "rounds": 3, **BATCH_NORM}
    ran, federated = train(method, **settings), train(like, **settings)
    params, buffers = kept(ran, 0)
    assert_close(params, federated.state.params, 1e-12)
    assert_close(buffers, federated.state.buffers, 1e-12)
