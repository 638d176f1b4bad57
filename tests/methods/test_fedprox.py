"""FedProx."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.core.outcome import train_client
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


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_mu_zero_is_fedavg(norm):
    assert_same_run(train("fedprox", mu=0.0, **{"model.norm": norm}), train("fedavg", **{"model.norm": norm}))


def test_mu_changes_the_result():
    assert_different(train("fedprox", mu=0.1).state.params, train("fedavg").state.params)


def one_step(task):
    return replace(task, phases=((task.phases[0][0],),))


def test_the_first_step_of_a_round_is_fedavgs():
    a, b = build("fedprox", mu=5.0), build("fedavg")
    task = one_step(tasks(a)[2])
    results = [local_train(s.problem, receive(s.problem, s.start, task, None, 0.05))[0].params for s in (a, b)]
    assert_same_bits(*results)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_training_follows_the_penalised_loss(norm):
    """Autograd of CE + (μ/2)‖w − w^t‖² in plain PyTorch gives the same model; statistics are not penalised."""
    mu, setup = 0.7, build("fedprox", mu=0.7, **{"model.norm": norm})
    task, samples = tasks(setup)[2], setup.problem.samples
    layers = plain.MLP if norm == "none" else plain.MLP_BATCH_NORM
    buffers = {n: v.clone() for n, v in setup.start.buffers.items()}
    data_loss = plain.cross_entropy(layers, buffers, samples.inputs, samples.labels)

    def loss(params, indices):
        penalty = sum(((w - setup.start.params[n]) ** 2).sum() for n, w in params.items())
        return data_loss(params, indices) + mu / 2 * penalty

    batches = [b.indices for b in task.phases[0]]
    expected = plain.local_sgd(loss, setup.start.params, batches, 0.05, 0.9, 1e-3)
    row, _ = local_train(setup.problem, receive(setup.problem, setup.start, task, None, 0.05))
    assert_close(row.params, expected, 1e-12)
    assert_close(row.buffers, buffers, 1e-12)


def test_a_large_mu_keeps_clients_at_home():
    def drift(mu):
        setup = build("fedprox", mu=mu, momentum=0.0)
        result = train_client(setup.problem, setup.start, tasks(setup)[2], None, 0.05)
        return torch.cat([v.flatten() for v in result.sums["delta"].values()]).norm()

    assert drift(15.0) < 0.5 * drift(0.0)


def test_nothing_else_travels():
    cost = [(row["bytes_up"], row["bytes_down"]) for row in train("fedprox", **BATCH_NORM).history]
    assert cost == [(row["bytes_up"], row["bytes_down"]) for row in train("fedavg", **BATCH_NORM).history]
