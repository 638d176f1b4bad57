"""FedPer."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.method import zeros
from fedblade.core.outcome import train_client
from fedblade.core.problem import PERSONAL
from fedblade.methods.fedper import fedper
from support.one_client import personal_model
from support.small_federation import BATCH_NORM, assert_close, assert_different, assert_same_bits, build, tasks, train

SGD = (0.05, 0.9, 1e-3)
LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}


def own(ran, client):
    return personal_model(ran.setup.problem, ran.state, ran.driver._store.get(client, ran.state.round))


def heads(tree):
    return {name: leaf for name, leaf in tree.items() if name.startswith("head.")}


def plain_rounds(setup, layers, rounds):
    """Heads in a list, one mean of bodies and statistics."""
    samples, body, buffers = setup.problem.samples, dict(setup.start.params), dict(setup.start.buffers)
    mine = [heads(setup.start.params) for _ in range(setup.config.federation.num_clients)]
    for round_ in range(rounds):
        models, statistics, sizes = [], [], []
        for client in map(int, setup.cohorts[round_]):
            task = setup.planner.task(round_, client)
            moments = {n: v.clone() for n, v in buffers.items()}
            loss = plain.cross_entropy(layers, moments, samples.inputs, samples.labels)
            model = plain.local_sgd(loss, body | mine[client], [b.indices for b in task.phases[0]], *SGD)
            mine[client] = heads(model)
            models.append({n: v for n, v in model.items() if not n.startswith("head.")})
            statistics.append(moments)
            sizes.append(len(task.indices))
        body |= plain.weighted_mean(models, sizes)
        buffers = plain.weighted_mean(statistics, sizes)
    return body, buffers, mine


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("cohort", [4, 2])
def test_three_rounds_agree_with_a_plain_version(cohort, norm):
    ran = train("fedper", rounds=3, clients_per_round=cohort, **{"model.norm": norm})
    body, buffers, mine = plain_rounds(ran.setup, LAYERS[norm], 3)
    assert_close(ran.state.params, body, 1e-11)
    assert_close(ran.state.buffers, buffers, 1e-11)
    for client in range(4):
        assert_close(heads(own(ran, client)[0]), mine[client], 1e-11)


ALONE = {"partition": "iid", "num_clients": 1, "clients_per_round": 1, "rounds": 3}


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_a_federation_of_one_is_local_training(norm):
    """The mean of one model differs from that model by rounding."""
    ours, local = (train(method, **ALONE, **{"model.norm": norm}) for method in ("fedper", "local_ce"))
    for mine, theirs in zip(own(ours, 0), own(local, 0), strict=True):
        assert_close(mine, theirs, 1e-12)
    assert_different(own(ours, 0)[0], ours.setup.start.params)


def test_one_round_of_a_federation_of_one_is_local_training_bit_for_bit():
    results = []
    for method in ("fedper", "local_ce"):
        setup = build(method, **ALONE)
        results.append(train_client(setup.problem, setup.start, tasks(setup)[0], None, 0.05).state[PERSONAL])
    assert_same_bits(results[0], heads(results[1]))


def test_the_head_never_leaves():
    setup = build("fedper", **BATCH_NORM)
    for task in tasks(setup):
        result = train_client(setup.problem, setup.start, task, None, 0.05)
        assert not heads({leaf: 0 for tree in result.sums.trees.values() for leaf in tree})
        assert result.state[PERSONAL].keys() == heads(setup.start.params).keys()
    ran = train("fedper", **BATCH_NORM)
    assert_same_bits(heads(ran.state.params), heads(ran.setup.start.params))


def test_the_head_costs_no_bytes():
    numbers = sum(leaf.numel() for leaf in heads(build("fedper").start.params).values())
    for row, base in zip(train("fedper").history, train("fedavg").history, strict=True):
        assert base["bytes_up"] - row["bytes_up"] == base["bytes_down"] - row["bytes_down"] == 4 * numbers * 8


def test_what_is_sent_depends_on_the_body_alone():
    """The same body under any other head gives the same sums."""
    seen = []

    def keep(view):
        seen.append(view)
        return view.client["none"]

    setup = build(replace(fedper(), client_state={"none": zeros}, client_update={"none": keep}))
    result = train_client(setup.problem, setup.start, tasks(setup)[1], None, 0.05)
    view = seen[0]
    other = replace(view, params=view.params | {n: torch.randn_like(v) for n, v in heads(view.params).items()})
    for each in setup.method.sums:
        assert_same_bits(dict(result.sums[each.name]), {n: v.double() for n, v in each.of(other).items()})


def test_a_client_that_never_trained_has_the_newest_body_under_the_initial_head():
    ran = train("fedper", rounds=1, clients_per_round=1)
    idle = next(k for k in range(4) if k not in ran.history[0]["clients"])
    params, _, _ = own(ran, idle)
    assert_same_bits(heads(params), heads(ran.setup.start.params))
    assert_different(params, ran.setup.start.params)
    assert_same_bits(params, ran.state.params)


def test_accuracy_is_the_mean_over_own_models():
    ran = train("fedper")
    inputs, labels = ran.setup.test.batch(torch.arange(40))
    values = []
    for client in range(4):
        params, buffers, _ = own(ran, client)
        z = plain.features(plain.MLP, params, buffers, inputs, training=False)
        predicted = (z @ params["head.weight"].T + params["head.bias"]).argmax(1)
        values.append(100 * (predicted == labels).double().mean().item())
    assert ran.history[-1]["test_accuracy"] == pytest.approx(sum(values) / 4, abs=1e-10)
    assert len(set(values)) > 1
