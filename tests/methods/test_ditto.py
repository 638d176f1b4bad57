"""Ditto."""

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.outcome import train_client
from fedblade.core.problem import BUFFERS, PERSONAL
from fedblade.methods.ditto import ditto
from support.one_client import personal_model
from support.small_federation import (
    BATCH_NORM,
    assert_close,
    assert_different,
    assert_same_bits,
    build,
    tasks,
    train,
)

SGD = (0.05, 0.9, 1e-3)
LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}


def kept(ran, client):
    return ran.driver._store.get(client, ran.state.round)


@pytest.mark.parametrize("setting", [{}, BATCH_NORM, {"clients_per_round": 2, "weighting": "batches"}])
@pytest.mark.parametrize("lambda_ditto", [0.0, 0.1, 5.0])
def test_the_global_model_is_fedavgs_bit_for_bit(lambda_ditto, setting):
    """GA of the card: model, statistics, accuracy and traffic."""
    ours, theirs = train("ditto", lambda_ditto=lambda_ditto, **setting), train("fedavg", **setting)
    assert_same_bits(ours.state.params, theirs.state.params)
    assert_same_bits(ours.state.buffers, theirs.state.buffers)
    for row, base in zip(ours.history, theirs.history, strict=True):
        assert {key: row[key] for key in base} == base


def test_without_pull_the_personal_model_is_local_training_bit_for_bit():
    """Every client trains in every round, on the same batches."""
    ours, local = (
        train(m, rounds=3, **BATCH_NORM, **k) for m, k in (("ditto", {"lambda_ditto": 0.0}), ("local_ce", {}))
    )
    for client in range(4):
        alone = kept(local, client)
        assert_same_bits(kept(ours, client)["personal"], alone[PERSONAL] | alone[BUFFERS])
        assert_different(alone[PERSONAL], local.setup.start.params)


def test_a_pull_changes_the_personal_model():
    zero, some = (train("ditto", lambda_ditto=value) for value in (0.0, 0.1))
    assert_different(kept(zero, 2)["personal"], kept(some, 2)["personal"])


def plain_rounds(setup, layers, rounds, pull):
    """FedAvg, and beside it a dictionary of models; the anchor is the model at the start of the round."""
    samples, params, buffers = setup.problem.samples, dict(setup.start.params), dict(setup.start.buffers)
    own = dict.fromkeys(range(4), (params, buffers))
    for round_ in range(rounds):
        models, statistics, sizes = [], [], []
        for client in map(int, setup.cohorts[round_]):
            task = setup.planner.task(round_, client)
            batches = [b.indices for b in task.phases[0]]
            moments, mine = ({n: v.clone() for n, v in tree.items()} for tree in (buffers, own[client][1]))
            loss = plain.cross_entropy(layers, moments, samples.inputs, samples.labels)
            models.append(plain.local_sgd(loss, params, batches, *SGD))
            personal = plain.cross_entropy(layers, mine, samples.inputs, samples.labels)

            def pulled(v, indices, personal=personal, anchor=params):
                return personal(v, indices) + pull / 2 * sum(((v[n] - anchor[n]) ** 2).sum() for n in v)

            own[client] = (plain.local_sgd(pulled, own[client][0], batches, *SGD), mine)
            statistics.append(moments)
            sizes.append(len(task.indices))
        params, buffers = plain.weighted_mean(models, sizes), plain.weighted_mean(statistics, sizes)
    return params, buffers, own


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("cohort", [4, 2])
def test_three_rounds_agree_with_a_plain_version(cohort, norm):
    ran = train("ditto", lambda_ditto=0.7, rounds=3, clients_per_round=cohort, **{"model.norm": norm})
    params, buffers, own = plain_rounds(ran.setup, LAYERS[norm], 3, 0.7)
    assert_close(ran.state.params, params, 1e-11)
    assert_close(ran.state.buffers, buffers, 1e-11)
    seen = {client for row in ran.history for client in row["clients"]}
    for client in seen:
        v, statistics = own[client]
        assert_close(kept(ran, client)["personal"], v | statistics, 1e-11)


def test_both_models_see_the_same_batches():
    for task in tasks(build("ditto")):
        main, personal = task.phases
        assert [b.indices.tolist() for b in main] == [b.indices.tolist() for b in personal]


def distance(lambda_ditto):
    """How far v_0, which starts as w^0, is from another w^t after a round of small steps."""
    setup = build("ditto", lambda_ditto=lambda_ditto, momentum=0.0, weight_decay=0.0)
    moved = setup.start.replace(params={n: v + 0.1 for n, v in setup.start.params.items()})
    v = train_client(setup.problem, moved, tasks(setup)[2], None, 1e-4).state["personal"]
    return max((v[n] - leaf).abs().max().item() for n, leaf in moved.params.items())


def test_a_strong_pull_brings_the_personal_model_to_the_model_received():
    """λη = 0.9 leaves a tenth of the distance after each of 12 steps; without λ it stays where it was."""
    assert distance(9000.0) < 1e-3
    assert distance(0.0) > 0.09


def test_the_personal_model_starts_as_the_initial_model_and_never_leaves():
    setup = build("ditto", **BATCH_NORM)
    later = setup.start.replace(params={n: v + 1.0 for n, v in setup.start.params.items()})
    result = train_client(setup.problem, later, tasks(setup)[0], None, 0.0)
    assert_close(result.state.pop("personal"), setup.start.params | result_statistics(setup), 1e-12)
    assert result.state == {}
    assert {each.name for each in setup.method.sums} == {each.name for each in build("fedavg").method.sums}


def result_statistics(setup):
    """Statistics of the initial model after a round at rate 0."""
    buffers = {n: v.clone() for n, v in setup.start.buffers.items()}
    for batch in tasks(setup)[0].phases[0]:
        inputs = setup.problem.samples.inputs[batch.indices]
        plain.features(plain.MLP_BATCH_NORM, setup.start.params, buffers, inputs, training=True)
    return buffers


def test_clients_are_measured_with_their_personal_models():
    ran = train("ditto", **BATCH_NORM)
    inputs, labels = ran.setup.test.batch(torch.arange(40))
    for row in ran.driver.clients:
        params, buffers, _ = personal_model(ran.setup.problem, ran.state, kept(ran, row["client"]))
        assert_same_bits(params | buffers, kept(ran, row["client"])["personal"])
        mine = ran.setup.clients.part(row["client"])
        z = plain.features(plain.MLP_BATCH_NORM, params, buffers, inputs[mine], training=False)
        right = (z @ params["head.weight"].T + params["head.bias"]).argmax(1) == labels[mine]
        assert row["accuracy"] == pytest.approx(100 * right.double().mean().item(), abs=1e-10)
    assert len({row["accuracy"] for row in ran.driver.clients}) > 1


def plain_fedbabu(setup, layers, rounds, pull):
    """A copy of w^t trains on cross-entropy; then w trains from w^t, pulled towards that copy, and is averaged."""
    samples, params, buffers = setup.problem.samples, dict(setup.start.params), dict(setup.start.buffers)
    for round_ in range(rounds):
        models, statistics, sizes = [], [], []
        for client in map(int, setup.cohorts[round_]):
            task = setup.planner.task(round_, client)
            batches = [b.indices for b in task.phases[0]]
            first, second = ({n: v.clone() for n, v in buffers.items()} for _ in range(2))
            copy = plain.local_sgd(
                plain.cross_entropy(layers, first, samples.inputs, samples.labels), params, batches, *SGD
            )
            loss = plain.cross_entropy(layers, second, samples.inputs, samples.labels)

            def pulled(w, indices, loss=loss, copy=copy):
                return loss(w, indices) + pull / 2 * sum(((w[n] - copy[n]) ** 2).sum() for n in w)

            models.append(plain.local_sgd(pulled, params, batches, *SGD))
            statistics.append(second)
            sizes.append(len(task.indices))
        params, buffers = plain.weighted_mean(models, sizes), plain.weighted_mean(statistics, sizes)
    return params, buffers


@pytest.mark.parametrize(("cohort", "norm"), [(4, "none"), (2, "batch")])
def test_the_variant_of_fedbabu_is_pulled_to_the_trained_copy(cohort, norm):
    knobs = {"variant": "fedbabu", "lambda_ditto": 0.75}
    ran = train("ditto", rounds=3, clients_per_round=cohort, **knobs, **{"model.norm": norm})
    params, buffers = plain_fedbabu(ran.setup, LAYERS[norm], 3, 0.75)
    assert_close(ran.state.params, params, 1e-11)
    assert_close(ran.state.buffers, buffers, 1e-11)
    assert not ran.setup.method.has_own_models
    assert all(kept(ran, client) is None for client in range(4))


def test_the_variant_of_fedbabu_without_pull_is_fedavg_bit_for_bit():
    ours, theirs = train("ditto", variant="fedbabu", lambda_ditto=0.0, **BATCH_NORM), train("fedavg", **BATCH_NORM)
    assert_same_bits(ours.state.params | ours.state.buffers, theirs.state.params | theirs.state.buffers)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"lambda_ditto": -0.1}, "lambda_ditto=-0.1: expected a number from 0 on"),
        ({"lambda_ditto": float("nan")}, "lambda_ditto=nan"),
        ({"variant": "fedbaba"}, "unknown variant 'fedbaba'.*fedbabu"),
    ],
)
def test_bad_knobs_are_refused(knobs, message):
    with pytest.raises(Misconfigured, match=message):
        ditto(**knobs)
