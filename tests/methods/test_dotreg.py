"""Dot-Regression and its fine-tuning."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.core.phase import Phase
from fedblade.core.problem import PERSONAL
from fedblade.methods.dotreg import FineTuning, dotreg
from fedblade.personal import finetuned
from support.one_client import adapt_client
from support.small_federation import (
    BATCH_NORM,
    NUM_CLASSES,
    assert_close,
    assert_different,
    assert_same_bits,
    assert_same_run,
    build,
    tasks,
    train,
    vectors,
)

LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}
MATCHED = {"dataset.test_split": "matched"}


def pull(layers, buffers, samples, V, teacher=None, beta=1.0):
    """β·mean ½(cos(z, v_y) − 1)² + (1 − β)·mean ‖z − z_g‖²/d, sample by sample; `teacher(x)` gives z_g."""

    def loss(params, indices):
        z = plain.features(layers, params, buffers, samples.inputs[indices], training=True)
        parts = []
        for row, label in zip(z, samples.labels[indices].tolist(), strict=True):
            cos = (row * V[:, label]).sum() / (row.norm().clamp(min=1e-12) * V[:, label].norm())
            parts.append(0.5 * (cos - 1) ** 2)
        total = beta * sum(parts) / len(parts)
        if teacher is not None:
            total = total + (1 - beta) * ((z - teacher(samples.inputs[indices])) ** 2).sum() / z.numel()
        return total

    return loss


def frozen(layers, params, buffers):
    """Features under running statistics, without a graph."""
    return lambda x: plain.features(layers, params, {**buffers}, x, training=False).detach()


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_two_rounds_agree_with_the_plain_version(norm):
    ran = train("dotreg", epochs=1, clients_per_round=3, **{"model.norm": norm})
    setup, params, buffers = ran.setup, ran.setup.start.params, ran.setup.start.buffers
    V = setup.start.fixed["etf"]
    for round_ in range(2):
        models, statistics, sizes = [], [], []
        for client in setup.cohorts[round_]:
            task = setup.planner.task(round_, int(client))
            own = {n: v.clone() for n, v in buffers.items()}
            loss = pull(LAYERS[norm], own, setup.problem.samples, V)
            models.append(plain.local_sgd(loss, params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3))
            statistics.append(own)
            sizes.append(len(task.indices))
        params, buffers = plain.weighted_mean(models, sizes), plain.weighted_mean(statistics, sizes)
    # class vectors are stored in float32: their length is 1 to 1e-7, and both sides divide by it
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)


def test_the_class_vectors_never_change_and_only_the_body_trains():
    ran = train("dotreg", rounds=3, **BATCH_NORM)
    assert_same_bits(ran.state.fixed, ran.setup.start.fixed)
    assert ran.state.fixed["etf"].shape == (16, NUM_CLASSES)
    assert all(name.startswith("body.") for name in ran.state.params)
    assert_different(ran.state.params, ran.setup.start.params)


def test_vectors_of_classes_a_client_lacks_do_not_matter():
    setup = build("dotreg")
    task = tasks(setup)[1]
    missing = task.counts == 0
    etf = setup.start.fixed["etf"].clone()
    etf[:, missing] = 7.0
    assert missing.any()

    def trained(vectors_):
        start = setup.start.replace(fixed={"etf": vectors_})
        return local_train(setup.problem, receive(setup.problem, start, task, None, 0.05))[0].params

    assert_same_bits(trained(setup.start.fixed["etf"]), trained(etf))
    assert_different(trained(etf), trained(etf.roll(1, 1)))


def test_the_loss_stays_in_its_range():
    rows = train("dotreg", rounds=3).history
    assert all(0 <= row["loss_supervised"] <= 2 for row in rows)


def accuracy(ran, params, buffers, indices):
    """Nearest class vector by angle."""
    V, samples = ran.setup.start.fixed["etf"], ran.setup.test
    z = plain.features(LAYERS["batch"], params, {**buffers}, samples.inputs[indices], training=False)
    found = torch.nn.functional.cosine_similarity(z[:, None], V.T[None], dim=2).argmax(1)
    return 100 * (found == samples.labels[indices]).double().mean().item()


def test_prediction_is_the_nearest_class_vector():
    ran = train("dotreg", **BATCH_NORM)
    expected = accuracy(ran, ran.state.params, ran.state.buffers, torch.arange(40))
    assert ran.history[-1]["test_accuracy"] == pytest.approx(expected, abs=1e-10)


def test_the_vectors_are_sent_once():
    first, second, third = (row["bytes_down"] for row in train("dotreg", rounds=3).history)
    assert first - second == 4 * 16 * NUM_CLASSES * 8
    assert second == third


@pytest.mark.parametrize("loss", ["dotreg", "feddr_plus"])
def test_fine_tuning_trains_the_final_global_model_on_the_loss_named(loss):
    ran = train("dotreg-ft", vectors(150, 100), epochs=1, **{"ft.loss": loss}, **BATCH_NORM, **MATCHED)
    state, samples, values = ran.state, ran.setup.problem.samples, []
    (phases,) = ran.setup.method.own.tuning["ft"]
    beta = 1.0 if loss == "dotreg" else 0.9
    for client in range(4):
        task = ran.setup.planner.task(2, client)
        own = {n: v.clone() for n, v in state.buffers.items()}
        teacher = None if beta == 1 else frozen(LAYERS["batch"], state.params, state.buffers)
        objective = pull(LAYERS["batch"], own, samples, state.fixed["etf"], teacher, beta)
        expected = plain.local_sgd(objective, state.params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3)
        tuned = adapt_client(ran.setup.problem, state, task, None, 0.05, phases).state
        assert_close(tuned[PERSONAL], expected, 1e-9)
        values.append(accuracy(ran, expected, own, torch.from_numpy(ran.setup.clients.part(client))))
    assert [row["accuracy"] for row in ran.driver.clients] == pytest.approx(values, abs=1e-10)
    assert_same_bits(state.fixed, ran.setup.start.fixed)


def test_the_loss_of_fine_tuning_leaves_training_alone():
    runs = [train("dotreg-ft", **{"ft.loss": loss}, **BATCH_NORM, **MATCHED) for loss in ("dotreg", "feddr_plus")]
    assert_same_run(*runs)
    assert_same_run(runs[0], train("dotreg", **BATCH_NORM, **MATCHED))


def test_fine_tuning_of_no_epochs_measures_the_global_model():
    method = dotreg()
    idle = finetuned(replace(method, own=replace(method.own, finetune=(Phase(epochs=0),))))
    ran = train(idle, vectors(150, 100), **BATCH_NORM, **MATCHED)
    parts = [torch.from_numpy(ran.setup.clients.part(k)) for k in range(4)]
    values = [accuracy(ran, ran.state.params, ran.state.buffers, part) for part in parts]
    assert [row["accuracy"] for row in ran.driver.clients] == pytest.approx(values, abs=1e-10)


def test_an_unknown_loss_is_refused():
    with pytest.raises(Misconfigured, match=r"unknown ft\.loss 'dotregs'.*dotreg"):
        FineTuning("dotregs")
