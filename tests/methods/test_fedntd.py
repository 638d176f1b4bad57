"""FedNTD."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.network import Network
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.methods.fedntd import fedntd
from support.small_federation import (
    BATCH_NORM,
    assert_close,
    assert_different,
    assert_same_bits,
    assert_same_run,
    build,
    tasks,
    train,
)

LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}


def logits_of(layers, params, buffers, x, training):
    z = plain.features(layers, params, buffers, x, training)
    return z @ params["head.weight"].T + params["head.bias"]


def not_true(student, teacher, labels, tau):
    """τ²·KL between softmaxes without the true class, one sample after the other."""
    total = 0.0
    for mine, other, label in zip(student, teacher, labels.tolist(), strict=True):
        keep = [c for c in range(len(mine)) if c != label]
        p, q = (torch.softmax(each[keep] / tau, 0) for each in (other, mine))
        total = total + tau**2 * (p * (p / q).log()).sum()
    return total / len(labels)


def distilled_loss(layers, own, x, y, received, beta, tau, teacher_norm):
    """CE + β·NTD; `received` is the pair of parameters and statistics that teaches."""

    def loss(w, indices):
        student = logits_of(layers, w, own, x[indices], training=True)
        teacher = logits_of(layers, received[0], dict(received[1]), x[indices], teacher_norm == "batch")
        data = torch.nn.functional.cross_entropy(student, y[indices])
        return data + beta * not_true(student, teacher, y[indices], tau)

    return loss


def reference(setup, norm, rounds, beta, tau, teacher_norm):
    x, y = setup.problem.samples.inputs, setup.problem.samples.labels
    params, buffers = setup.start.params, setup.start.buffers
    for round_ in range(rounds):
        models, statistics, sizes = [], [], []
        for client in setup.cohorts[round_].tolist():
            task, own = setup.planner.task(round_, client), {n: v.clone() for n, v in buffers.items()}
            loss = distilled_loss(LAYERS[norm], own, x, y, (params, buffers), beta, tau, teacher_norm)
            models.append(plain.local_sgd(loss, params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3))
            statistics.append(own)
            sizes.append(len(task.indices))
        params, buffers = plain.weighted_mean(models, sizes), plain.weighted_mean(statistics, sizes)
    return params, buffers


@pytest.mark.parametrize(("norm", "teacher_norm"), [("none", "eval"), ("batch", "eval"), ("batch", "batch")])
def test_two_rounds_agree_with_a_plain_version(norm, teacher_norm):
    knobs = {"beta_ntd": 0.7, "tau": 2.0, "teacher_norm": teacher_norm}
    ran = train("fedntd", **knobs, **{"model.norm": norm})
    params, buffers = reference(ran.setup, norm, 2, 0.7, 2.0, teacher_norm)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)


def test_the_comparison_notices_a_changed_knob():
    ran = train("fedntd", beta_ntd=0.7, tau=2.0)
    params, _ = reference(ran.setup, "none", 2, 0.7, 2.001, "eval")
    with pytest.raises(AssertionError, match="body"):
        assert_close(ran.state.params, params, 1e-9)


def test_the_two_ways_to_normalise_the_teacher_differ():
    runs = [train("fedntd", teacher_norm=norm, **BATCH_NORM).state.params for norm in ("eval", "batch")]
    assert_different(*runs)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_beta_zero_is_fedavg(norm):
    """A knob at its neutral value gives the simpler method, bit for bit."""
    overrides = {"model.norm": norm}
    assert_same_run(train("fedntd", beta_ntd=0.0, **overrides), train("fedavg", **overrides))


def test_a_term_without_weight_asks_no_teacher(monkeypatch):
    calls = []
    forward = Network._forward

    def counted(*args, **kwargs):
        calls.append(torch.is_grad_enabled())
        return forward(*args, **kwargs)

    monkeypatch.setattr(Network, "_forward", counted)
    for beta, teachers in ((0.0, 0), (1.0, 1)):
        setup = build("fedntd", beta_ntd=beta)
        calls.clear()
        one_step(setup)
        assert (calls.count(True), calls.count(False)) == (1, teachers)


def one_step(setup, **changes):
    task = tasks(setup)[2]
    received = receive(setup.problem, setup.start, replace(task, phases=(task.phases[0][:1],)), None, 0.05)
    return local_train(setup.problem, replace(received, **changes))


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_the_first_step_of_a_round_has_no_distillation(norm):
    """There student and teacher are one model."""
    overrides = {"model.norm": norm, "momentum": 0.0, "weight_decay": 0.0}
    (a, trace), (b, _) = (
        one_step(build(*name, **overrides)) for name in ((fedntd(beta_ntd=5.0, teacher_norm="batch"),), ("fedavg",))
    )
    assert abs(trace[0]["loss_ntd"].item()) < 1e-15
    assert_close(a.params, b.params, 1e-15)
    assert_same_bits(a.buffers, b.buffers)


@pytest.mark.parametrize("teacher_norm", ["eval", "batch"])
def test_the_teacher_changes_no_statistics(teacher_norm):
    """The student's are updated once a step, the received ones never."""
    setup = build("fedntd", teacher_norm=teacher_norm, **BATCH_NORM)
    received = receive(setup.problem, setup.start, tasks(setup)[2], None, 0.05)
    before = {n: v.clone() for n, v in received.buffers.items()}
    row, trace = local_train(setup.problem, received)
    assert_same_bits(received.buffers, before)
    assert row.buffers["body.layers.1.num_batches_tracked"] == len(trace)
    assert_same_bits(one_step(setup)[0].buffers, one_step(build("fedavg", **BATCH_NORM))[0].buffers)


def test_only_the_model_travels_and_nothing_is_kept():
    cost = [(row["bytes_up"], row["bytes_down"]) for row in train("fedntd").history]
    assert cost == [(row["bytes_up"], row["bytes_down"]) for row in train("fedavg").history]
    assert fedntd().client_state == {}


def test_the_defaults_are_those_of_feddr_plus():
    assert_same_run(train("fedntd"), train("fedntd", beta_ntd=1.0, tau=3.0, teacher_norm="eval"))


def test_nonsense_is_refused():
    with pytest.raises(Misconfigured, match="tau=0"):
        fedntd(tau=0.0)
    with pytest.raises(Misconfigured, match="teacher_norm"):
        build("fedntd", teacher_norm="running")
