"""FedBN."""

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.outcome import train_client
from fedblade.core.problem import BUFFERS, PERSONAL
from support.one_client import personal_model
from support.small_federation import (
    BATCH_NORM,
    CNN,
    assert_close,
    assert_different,
    assert_same_bits,
    assert_same_run,
    build,
    images,
    tasks,
    train,
)

SGD = (0.05, 0.9, 1e-3)
NORM = ("body.layers.1.", "body.layers.4.")


def norm_of(tree):
    return {name: leaf for name, leaf in tree.items() if name.startswith(NORM)}


def kept(ran, client):
    return ran.driver._store.get(client, ran.state.round)


@pytest.mark.parametrize("setting", [{}, {"clients_per_round": 2, "rounds": 3}], ids=["all", "partial"])
def test_without_normalisation_layers_it_is_fedavg_bit_for_bit(setting):
    """A personal method without personal tensors is its base."""
    assert_same_bits(train("fedbn", **setting).state.params, train("fedavg", **setting).state.params)


def test_with_normalisation_layers_it_is_not():
    assert_different(train("fedbn", **BATCH_NORM).state.params, train("fedavg", **BATCH_NORM).state.params)


def plain_rounds(setup, rounds):
    """Two dictionaries per client: what it holds alone, and the mean of the rest."""
    samples, shared = setup.problem.samples, dict(setup.start.params)
    own = {k: (norm_of(setup.start.params), dict(setup.start.buffers)) for k in range(4)}
    for round_ in range(rounds):
        models, sizes = [], []
        for client in map(int, setup.cohorts[round_]):
            task = setup.planner.task(round_, client)
            layers, statistics = own[client][0], {n: v.clone() for n, v in own[client][1].items()}
            loss = plain.cross_entropy(plain.MLP_BATCH_NORM, statistics, samples.inputs, samples.labels)
            model = plain.local_sgd(loss, shared | layers, [b.indices for b in task.phases[0]], *SGD)
            own[client] = (norm_of(model), statistics)
            models.append({n: v for n, v in model.items() if n not in layers})
            sizes.append(len(task.indices))
        shared |= plain.weighted_mean(models, sizes)
    return shared, own


@pytest.mark.parametrize("cohort", [4, 2])
def test_three_rounds_agree_with_a_plain_version(cohort):
    ran = train("fedbn", rounds=3, clients_per_round=cohort, **BATCH_NORM)
    shared, own = plain_rounds(ran.setup, 3)
    assert_close(ran.state.params, shared, 1e-11)
    for client, (layers, statistics) in own.items():
        params, buffers, _ = personal_model(ran.setup.problem, ran.state, kept(ran, client))
        assert_close(norm_of(params), layers, 1e-11)
        assert_close(buffers, statistics, 1e-11)


def test_aggregation_never_changes_a_clients_normalisation():
    """The client's layers after a round are those it ended its own training with, to the bit."""
    ran = train("fedbn", rounds=1, **BATCH_NORM)
    for task in tasks(ran.setup):
        alone = train_client(ran.setup.problem, ran.setup.start, task, None, 0.05).state
        assert alone[PERSONAL].keys() | alone[BUFFERS].keys() == norm_of(ran.state.params | ran.state.buffers).keys()
        for part in (PERSONAL, BUFFERS):
            assert_same_bits(kept(ran, task.client)[part], alone[part])
        assert_different(alone[PERSONAL], norm_of(ran.setup.start.params))


def test_a_client_that_rests_keeps_its_normalisation():
    first, second = (train("fedbn", rounds=rounds, clients_per_round=2, **BATCH_NORM) for rounds in (1, 2))
    resting = [k for k in second.history[0]["clients"] if k not in second.history[1]["clients"]]
    assert resting
    for client in resting:
        assert_same_bits(kept(first, client)[PERSONAL], kept(second, client)[PERSONAL])
        assert_same_bits(kept(first, client)[BUFFERS], kept(second, client)[BUFFERS])


def test_nothing_of_the_normalisation_leaves_and_it_costs_no_bytes():
    ours, theirs = train("fedbn", **BATCH_NORM), train("fedavg", **BATCH_NORM)
    for task in tasks(ours.setup):
        sent = train_client(ours.setup.problem, ours.setup.start, task, None, 0.05).sums
        assert not norm_of({leaf: 0 for tree in sent.trees.values() for leaf in tree})
    numbers = sum(leaf.numel() for leaf in norm_of(ours.state.params | ours.state.buffers).values())
    for row, base in zip(ours.history, theirs.history, strict=True):
        assert base["bytes_up"] - row["bytes_up"] == base["bytes_down"] - row["bytes_down"] == 4 * numbers * 8


def test_a_client_that_never_trained_is_measured_with_the_initial_normalisation():
    ran = train("fedbn", rounds=1, clients_per_round=1, **BATCH_NORM)
    idle = next(k for k in range(4) if k not in ran.history[0]["clients"])
    params, buffers, _ = personal_model(ran.setup.problem, ran.state, kept(ran, idle))
    assert_same_bits(norm_of(params), norm_of(ran.setup.start.params))
    assert_same_bits(buffers, ran.setup.start.buffers)
    assert_different(params, ran.setup.start.params)


def test_accuracy_is_the_mean_over_own_models():
    ran = train("fedbn", **BATCH_NORM)
    inputs, labels = ran.setup.test.batch(torch.arange(40))
    values = []
    for client in range(4):
        params, buffers, _ = personal_model(ran.setup.problem, ran.state, kept(ran, client))
        z = ran.setup.problem.network.features(params, buffers, inputs, training=False)
        values.append(
            100 * (ran.setup.problem.network.output(params, {}, z).logits.argmax(1) == labels).double().mean()
        )
    assert ran.history[-1]["test_accuracy"] == pytest.approx(float(sum(values)) / 4, abs=1e-10)
    assert len({float(value) for value in values}) > 1
    assert ran.setup.method.accuracy_of == "personal"


def test_a_regulariser_of_weight_zero_changes_no_bit():
    """A weight of zero gives the simpler method, bit for bit."""
    assert_same_run(
        train("fedbn+feddecorr", **{"method.feddecorr.lambda_decorr": 0.0}, **BATCH_NORM), train("fedbn", **BATCH_NORM)
    )


def test_the_layers_of_a_cnn_are_found():
    setup = build("fedbn", images(), **CNN)
    own = (setup.start.params | setup.start.buffers).keys() - setup.problem.shared
    assert own == {
        f"body.{name}.{leaf}"
        for name, module in setup.problem.network.body.named_modules()
        if isinstance(module, torch.nn.BatchNorm2d)
        for leaf in module.state_dict()
    }
    assert own
