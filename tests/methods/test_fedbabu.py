"""FedBABU: training, fine-tuning and its part in the protocol `gapa`."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.phase import Phase, Sgd
from fedblade.core.problem import PERSONAL
from fedblade.methods.fedavg import fedavg
from fedblade.methods.fedbabu import fedbabu
from fedblade.personal import finetuned
from fedblade.runs import plan_phases
from support.one_client import adapt_client
from support.small_federation import (
    BATCH_NORM,
    DIM,
    NUM_CLASSES,
    assert_close,
    assert_different,
    assert_same_bits,
    assert_same_run,
    build,
    train,
    vectors,
)

LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}
MATCHED = {"dataset.test_split": "matched"}
HEAD = {"head.weight", "head.bias"}


def test_the_head_starts_as_fedavgs_and_stays_so():
    ran, other = train("fedbabu", rounds=3, **BATCH_NORM), build("fedavg", **BATCH_NORM)
    assert_same_bits(ran.state.fixed, {name: other.start.params[name] for name in ("head.weight", "head.bias")})
    assert_same_bits(ran.setup.start.params, {n: v for n, v in other.start.params.items() if n not in HEAD})
    assert_different(ran.state.params, ran.setup.start.params)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_it_is_fedavg_with_a_head_that_has_no_rate_and_no_decay(norm):
    still = replace(fedavg(), phases=(Phase(group_sgd={"head": Sgd(lr=0.0, weight_decay=0.0)}),))
    settings = {"rounds": 3, "clients_per_round": 3, "model.norm": norm}
    ran, other = train("fedbabu", **settings), train(still, **settings)
    assert_same_bits(ran.state.params | ran.state.fixed, other.state.params)
    assert_same_bits(ran.state.buffers, other.state.buffers)
    assert [row["test_loss"] for row in ran.history] == [row["test_loss"] for row in other.history]


def test_it_is_not_fedavg():
    body = {n: v for n, v in train().state.params.items() if n not in HEAD}
    assert_different(train("fedbabu").state.params, body)


def test_the_head_is_sent_once_and_never_back():
    ran, other = train("fedbabu", rounds=3), train("fedavg", rounds=3)
    head = 4 * (NUM_CLASSES * DIM + NUM_CLASSES) * 8
    down = [b["bytes_down"] - a["bytes_down"] for a, b in zip(ran.history, other.history, strict=True)]
    assert down == [0, head, head]
    assert [b["bytes_up"] - a["bytes_up"] for a, b in zip(ran.history, other.history, strict=True)] == [head] * 3


def body_loss(layers, buffers, samples, head):
    """Cross-entropy of the body's features under a head that is a constant."""

    def loss(params, indices):
        z = plain.features(layers, params, buffers, samples.inputs[indices], training=True)
        logits = z @ head["head.weight"].T + head["head.bias"]
        return torch.nn.functional.cross_entropy(logits, samples.labels[indices])

    return loss


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_two_rounds_agree_with_the_plain_version(norm):
    ran = train("fedbabu", clients_per_round=3, **{"model.norm": norm})
    setup, params, buffers = ran.setup, ran.setup.start.params, ran.setup.start.buffers
    for round_ in range(2):
        models, statistics, sizes = [], [], []
        for client in setup.cohorts[round_]:
            task = setup.planner.task(round_, int(client))
            own = {n: v.clone() for n, v in buffers.items()}
            loss = body_loss(LAYERS[norm], own, setup.problem.samples, setup.start.fixed)
            models.append(plain.local_sgd(loss, params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3))
            statistics.append(own)
            sizes.append(len(task.indices))
        params, buffers = plain.weighted_mean(models, sizes), plain.weighted_mean(statistics, sizes)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)


def accuracy(ran, model, indices):
    samples = ran.setup.test
    buffers = {n: v for n, v in model.items() if "running" in n}
    z = plain.features(plain.MLP_BATCH_NORM, model, buffers, samples.inputs[indices], training=False)
    found = (z @ model["head.weight"].T + model["head.bias"]).argmax(1)
    return 100 * (found == samples.labels[indices]).double().mean().item()


def test_global_accuracy_is_that_of_the_initial_head():
    ran = train("fedbabu", **BATCH_NORM)
    expected = accuracy(ran, ran.state.params | ran.state.buffers | ran.setup.start.fixed, torch.arange(40))
    assert ran.history[-1]["test_accuracy"] == pytest.approx(expected, abs=1e-10)


def tuned_by_hand(ran, client, phases):
    """All of the final global model trained on the batches after the last round, the head included."""
    setup = ran.setup
    task = setup.planner.task(ran.state.round, client, plan_phases(setup.config, phases))
    own = {n: v.clone() for n, v in ran.state.buffers.items()}
    loss = plain.cross_entropy(plain.MLP_BATCH_NORM, own, setup.problem.samples.inputs, setup.problem.samples.labels)
    batches = [b.indices for phase in task.phases for b in phase]
    return plain.local_sgd(loss, ran.state.params | ran.state.fixed, batches, 0.05, 0.9, 1e-3) | own


def check_tuned(ran, phases):
    values = []
    for client in range(4):
        model = tuned_by_hand(ran, client, phases)
        values.append(accuracy(ran, model, torch.from_numpy(ran.setup.clients.part(client))))
    assert [row["accuracy"] for row in ran.driver.clients] == pytest.approx(values, abs=1e-10)
    assert len(set(values)) > 1


def test_fine_tuning_trains_the_head_too():
    ran = train("fedbabu-ft", vectors(150, 100), **BATCH_NORM, **MATCHED)
    phases = ran.setup.method.own.finetune
    check_tuned(ran, phases)
    task = ran.setup.planner.task(2, 0)
    tuned = adapt_client(ran.setup.problem, ran.state, task, None, 0.05, phases).state[PERSONAL]
    assert tuned.keys() == ran.state.params.keys() | HEAD
    for name, leaf in tuned.items():
        assert not torch.equal(leaf, (ran.state.params | ran.state.fixed)[name]), name


def test_fine_tuning_leaves_the_global_model_alone():
    ran, plain_run = train("fedbabu-ft", **BATCH_NORM, **MATCHED), train("fedbabu", **BATCH_NORM, **MATCHED)
    assert_same_run(ran, plain_run)
    assert_same_bits(ran.state.fixed, ran.setup.start.fixed)
    assert not any("accuracy" in record for record in plain_run.driver.clients)


def test_fine_tuning_of_no_epochs_measures_the_global_model():
    method = fedbabu()
    idle = finetuned(replace(method, own=replace(method.own, finetune=(replace(method.own.finetune[0], epochs=0),))))
    ran = train(idle, vectors(150, 100), **BATCH_NORM, **MATCHED)
    model = ran.state.params | ran.state.buffers | ran.state.fixed
    values = [accuracy(ran, model, torch.from_numpy(ran.setup.clients.part(k))) for k in range(4)]
    assert [row["accuracy"] for row in ran.driver.clients] == pytest.approx(values, abs=1e-10)


def test_p_gapa_tunes_body_and_head_for_ten_epochs():
    """1.8: global accuracy from the initial head, personal accuracy after ten epochs on each client."""
    ran = train("fedbabu", vectors(150, 100), rounds=1, **BATCH_NORM, **MATCHED, **{"evaluation.protocol": "gapa"})
    check_tuned(ran, (Phase(epochs=10),))
    expected = accuracy(ran, ran.state.params | ran.state.buffers | ran.setup.start.fixed, torch.arange(100))
    assert ran.history[0]["test_accuracy"] == pytest.approx(expected, abs=1e-10)
