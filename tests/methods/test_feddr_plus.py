"""FedDr+ and its fine-tuning."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.problem import PERSONAL
from fedblade.core.views import Teacher
from fedblade.losses import FeatureDistillation
from fedblade.methods.dotreg import dotreg
from fedblade.methods.feddr_plus import feddr_plus
from fedblade.personal import finetuned
from fedblade.regularisers._mix import mixed
from support.one_client import adapt_client
from support.small_federation import (
    BATCH_NORM,
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


def objective(layers, buffers, samples, V, anchor, statistics, beta, teacher_norm):
    """β·mean ½(1 − cos(z, v_y))² + (1 − β)·mean ‖z − z_g‖²/d, z_g of the model received."""

    def loss(params, indices):
        x = samples.inputs[indices]
        z = plain.features(layers, params, buffers, x, training=True)
        with torch.no_grad():
            z_g = plain.features(layers, anchor, {**statistics}, x, training=teacher_norm == "batch")
        total = 0.0
        for row, row_g, label in zip(z, z_g, samples.labels[indices].tolist(), strict=True):
            v = V[:, label]
            cos = (row @ v) / (row.norm().clamp(min=1e-12) * v.norm())
            total = total + beta * 0.5 * (1 - cos) ** 2 + (1 - beta) * ((row - row_g) ** 2).sum() / len(row)
        return total / len(indices)

    return loss


def local(setup, norm, params, buffers, task, beta, teacher_norm):
    own = {n: v.clone() for n, v in buffers.items()}
    V = setup.start.fixed["etf"]
    loss = objective(LAYERS[norm], own, setup.problem.samples, V, params, buffers, beta, teacher_norm)
    return plain.local_sgd(loss, params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3), own


def reference(setup, norm, beta, teacher_norm, rounds):
    params, buffers = setup.start.params, setup.start.buffers
    for round_ in range(rounds):
        each = [setup.planner.task(round_, int(client)) for client in setup.cohorts[round_]]
        made = [local(setup, norm, params, buffers, task, beta, teacher_norm) for task in each]
        sizes = [len(task.indices) for task in each]
        params, buffers = (plain.weighted_mean([pair[i] for pair in made], sizes) for i in (0, 1))
    return params, buffers


@pytest.mark.parametrize(("norm", "teacher_norm"), [("none", "eval"), ("batch", "eval"), ("batch", "batch")])
@pytest.mark.parametrize("beta", [0.9, 0.3])
def test_three_rounds_agree_with_the_plain_version(norm, teacher_norm, beta):
    knobs = {"beta": beta, "teacher_norm": teacher_norm, "model.norm": norm}
    ran = train("feddr_plus", epochs=1, rounds=3, clients_per_round=3, **knobs)
    params, buffers = reference(ran.setup, norm, beta, teacher_norm, 3)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)


@pytest.mark.parametrize(("beta", "teacher_norm"), [(0.9001, "eval"), (0.9, "batch")])
def test_the_comparison_notices_another_share_or_teacher(beta, teacher_norm):
    ran = train("feddr_plus", epochs=1, **BATCH_NORM)
    params, _ = reference(ran.setup, "batch", beta, teacher_norm, 2)
    with pytest.raises(AssertionError):
        assert_close(ran.state.params, params, 1e-7)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_with_all_weight_on_dot_regression_it_is_dot_regression(norm):
    """Bit for bit, fine-tuning included."""
    settings = {"rounds": 3, "clients_per_round": 3, "model.norm": norm, **MATCHED}
    a, b = train("feddr_plus-ft", beta=1.0, **settings), train("dotreg-ft", **settings)
    assert_same_run(a, b)
    assert a.driver.clients == b.driver.clients


@pytest.mark.parametrize("beta", [0.9, 0.5])
@pytest.mark.parametrize("teacher_norm", ["eval", "batch"])
def test_it_is_dot_regression_mixed_with_feature_distillation(beta, teacher_norm):
    """Bit for bit."""
    synergy = mixed(beta, FeatureDistillation(teacher=Teacher(norm=teacher_norm)))(dotreg())
    ran = train("feddr_plus", beta=beta, teacher_norm=teacher_norm, **BATCH_NORM)
    assert_same_run(ran, train(synergy, **BATCH_NORM))


@pytest.mark.parametrize("beta", [0.9, 0.99])
def test_its_name_in_the_synergy_grid_means_the_same(beta):
    """FedDr+ is dot regression mixed with feature distillation."""
    synergy = train("dotreg+fd", **{"method.fd.beta": beta}, **BATCH_NORM)
    assert_same_run(train("feddr_plus", beta=beta, **BATCH_NORM), synergy)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_distillation_alone_has_nothing_to_learn(norm):
    """β = 0: student and teacher agree at the first step, so without decay the model never moves."""
    knobs = {"beta": 0.0, "teacher_norm": "batch", "weight_decay": 0.0, "model.norm": norm}
    ran = train("feddr_plus", rounds=3, **knobs)
    assert_same_bits(ran.state.params, ran.setup.start.params)
    assert [row["loss_fd"] for row in ran.history] == [0.0] * 3
    assert "loss_supervised" not in ran.history[0]


def test_distillation_alone_holds_against_weight_decay():
    """The counterpart that keeps the zero above honest: once the model moves, the distance is felt."""
    ran = train("feddr_plus", beta=0.0, teacher_norm="batch", **BATCH_NORM)
    assert all(row["loss_fd"] > 0 for row in ran.history)
    assert_different(ran.state.params, ran.setup.start.params)


def test_a_teacher_with_running_statistics_differs_from_its_student():
    """2.1: the two coincide where normalisation always uses the batch."""
    knobs = {"beta": 0.0, "weight_decay": 0.0, "rounds": 1, **BATCH_NORM}
    assert train("feddr_plus", **knobs).history[0]["loss_fd"] > 0
    always = train("feddr_plus", **knobs, **{"model.norm_stats": "batch"})
    assert_same_bits(always.state.params, always.setup.start.params)


def test_the_class_vectors_never_change():
    ran = train("feddr_plus", rounds=3, **BATCH_NORM)
    assert_same_bits(ran.state.fixed, ran.setup.start.fixed)
    assert all(name.startswith("body.") for name in ran.state.params)


def test_it_sends_what_dot_regression_sends():
    for ours, theirs in zip(train("feddr_plus").history, train("dotreg").history, strict=True):
        assert (ours["bytes_up"], ours["bytes_down"]) == (theirs["bytes_up"], theirs["bytes_down"])


def accuracy(ran, params, buffers, client):
    part = torch.from_numpy(ran.setup.clients.part(client))
    samples, V = ran.setup.test, ran.state.fixed["etf"]
    z = plain.features(LAYERS["batch"], params, {**buffers}, samples.inputs[part], training=False)
    return 100 * ((plain.unit(z) @ V).argmax(1) == samples.labels[part]).double().mean().item()


@pytest.mark.parametrize(("loss", "share"), [("feddr_plus", 0.6), ("dotreg", 1.0)])
def test_fine_tuning_has_the_final_global_model_as_its_teacher(loss, share):
    knobs = {"beta": 0.6, "ft.loss": loss, "epochs": 1, **BATCH_NORM, **MATCHED}
    ran = train("feddr_plus-ft", vectors(150, 100), **knobs)
    (phases,) = ran.setup.method.own.tuning["ft"]
    state, values = ran.state, []
    for client in range(4):
        task = ran.setup.planner.task(2, client)
        expected, own = local(ran.setup, "batch", state.params, state.buffers, task, share, "eval")
        tuned = adapt_client(ran.setup.problem, state, task, None, 0.05, phases).state
        assert_close(tuned[PERSONAL], expected, 1e-9)
        values.append(accuracy(ran, expected, own, client))
    assert [row["accuracy"] for row in ran.driver.clients] == pytest.approx(values, abs=1e-10)
    assert_same_bits(state.fixed, ran.setup.start.fixed)


def test_by_default_each_method_is_tuned_on_its_own_loss():
    def terms(method):
        ((phase,),) = finetuned(method).own.tuning["ft"]
        return [(term.name, term.weight) for term in (method.losses if phase.losses is None else phase.losses)]

    assert terms(dotreg()) == [("supervised", 1.0)]
    assert terms(feddr_plus()) == [("supervised", 0.9), ("fd", pytest.approx(0.1))]
    assert terms(feddr_plus(ft=replace(feddr_plus.__defaults__[2], loss="dotreg"))) == [("supervised", 1.0)]


def test_bad_knobs_are_refused():
    with pytest.raises(Misconfigured, match=r"beta = 1\.1"):
        feddr_plus(beta=1.1)
    with pytest.raises(Misconfigured, match=r"teacher_norm = .evil. is not allowed; expected 'eval' or 'batch'"):
        build("feddr_plus", teacher_norm="evil")
