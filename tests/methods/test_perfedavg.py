"""Per-FedAvg."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.lengths import PhasePlan
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.methods.perfedavg import perfedavg
from fedblade.runs import tuning_stages
from support.one_client import personal_model
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
MOMENTUM, DECAY = 0.9, 1e-3


def local(setup, task, lr=0.05):
    return local_train(setup.problem, receive(setup.problem, setup.start, task, None, lr))[0]


def plain_client(setup, layers, params, buffers, pairs, alpha, beta, carry=False):
    """The definition with autograd and dictionaries; statistics follow the first batch of a pair alone."""
    x, y = setup.problem.samples.inputs, setup.problem.samples.labels
    params = {n: v.clone() for n, v in params.items()}
    velocity = {n: torch.zeros_like(v) for n, v in params.items()}

    def gradient(w, moments, indices):
        w = {n: v.detach().requires_grad_() for n, v in w.items()}
        loss = plain.cross_entropy(layers, moments, x, y)(w, indices)
        return dict(zip(w, torch.autograd.grad(loss, list(w.values())), strict=True))

    for first, second in pairs:
        g = gradient(params, buffers, first)
        if carry:
            velocity = g = {n: MOMENTUM * velocity[n] + g[n] for n in params}
        moved = {n: w - alpha * g[n] for n, w in params.items()}
        g = gradient(moved, dict(buffers), second)
        for n, w in params.items():
            velocity[n] = MOMENTUM * velocity[n] + g[n] + DECAY * w
            params[n] = w - beta * velocity[n]
    return params


def plain_rounds(setup, layers, rounds, alpha, beta, carry=False):
    params, buffers = dict(setup.start.params), dict(setup.start.buffers)
    for round_ in range(rounds):
        models, statistics = [], []
        for client in map(int, setup.cohorts[round_]):
            (steps,) = setup.planner.task(round_, client).phases
            moments = {n: v.clone() for n, v in buffers.items()}
            pairs = [(b.indices, b.then.indices) for b in steps]
            models.append(plain_client(setup, layers, params, moments, pairs, alpha, beta, carry))
            statistics.append(moments)
        params, buffers = (plain.weighted_mean(trees, [1] * len(trees)) for trees in (models, statistics))
    return params, buffers


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize(("alpha_in", "alpha"), [("auto", 0.05), (0.2, 0.2)])
def test_two_rounds_agree_with_a_plain_version(alpha_in, alpha, norm):
    ran = train("perfedavg", alpha_in=alpha_in, beta_out=0.03, clients_per_round=3, **{"model.norm": norm})
    params, buffers = plain_rounds(ran.setup, LAYERS[norm], 2, alpha, 0.03)
    assert_close(ran.state.params, params, 1e-11)
    assert_close(ran.state.buffers, buffers, 1e-11)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_momentum_that_is_carried_on_serves_both_steps(norm):
    knobs = {"alpha_in": 0.2, "beta_out": 0.03, "clients_per_round": 3, "model.norm": norm}
    ran = train("perfedavg", carry_momentum=True, **knobs)
    params, buffers = plain_rounds(ran.setup, LAYERS[norm], 2, 0.2, 0.03, carry=True)
    assert_close(ran.state.params, params, 1e-11)
    assert_close(ran.state.buffers, buffers, 1e-11)
    assert_different(ran.state.params, train("perfedavg", **knobs).state.params)
    still = {**knobs, "momentum": 0.0}
    assert_same_run(train("perfedavg", carry_momentum=True, **still), train("perfedavg", **still))


def test_auto_follows_the_schedule_and_the_outer_rate_does_not():
    rates = {"lr": 0.2, "schedule": "step", "rounds": 4}
    ran = train("perfedavg", **rates)
    assert [row["lr"] for row in ran.history] == pytest.approx([0.2, 0.2, 0.02, 0.002])
    setup, task = ran.setup, tasks(ran.setup)[2]
    pairs = [(b.indices, b.then.indices) for b in task.phases[0]]
    for rate in (0.2, 0.002):
        expected = plain_client(setup, plain.MLP, setup.start.params, {}, pairs, rate, 0.001)
        assert_close(local(setup, task, rate).params, expected, 1e-12)


def every_second(task):
    return [b.then for b in task.phases[0]]


def test_without_inner_steps_it_is_fedavg_on_every_second_batch_at_the_outer_rate():
    """The card's test, bit for bit: FedAvg's own loop on those batches, at that rate."""
    ours, fedavg = build("perfedavg", alpha_in=0.0, beta_out=0.03), build("fedavg")
    for task in tasks(ours):
        seconds = replace(task, phases=(tuple(every_second(task)),))
        assert_same_bits(local(ours, task).params, local(fedavg, seconds, 0.03).params)


def test_without_inner_steps_a_round_is_the_uniform_mean_of_plain_sgd():
    ran = train("perfedavg", alpha_in=0.0, beta_out=0.03, rounds=1)
    samples = ran.setup.problem.samples
    loss = plain.cross_entropy(plain.MLP, {}, samples.inputs, samples.labels)
    models = [
        plain.local_sgd(loss, ran.setup.start.params, [b.indices for b in every_second(task)], 0.03, MOMENTUM, DECAY)
        for task in tasks(ran.setup)
    ]
    assert_close(ran.state.params, plain.weighted_mean(models, [1] * 4), 1e-12)


def test_an_inner_step_changes_the_result():
    assert_different(train("perfedavg", alpha_in=0.0).state.params, train("perfedavg").state.params)


def test_an_epoch_has_half_as_many_steps_as_batches_and_no_batch_serves_twice():
    ours, fedavg = build("perfedavg"), build("fedavg")
    for pairs, single in zip(tasks(ours), tasks(fedavg), strict=True):
        batches = single.phases[0][: len(single.phases[0]) // 2]
        steps = pairs.phases[0][: len(pairs.phases[0]) // 2]
        assert len(steps) == max(1, len(batches) // 2)
        used = [batch.indices.tolist() for step in steps for batch in (step, step.then)]
        if len(batches) > 1:
            assert used == [batch.indices.tolist() for batch in batches[: 2 * len(steps)]]


def test_an_only_batch_serves_as_both():
    setup = build("perfedavg", **{"local.batch_size": 200})
    for task in tasks(setup):
        assert len(task.phases[0]) == 2
        assert all(torch.equal(step.indices, step.then.indices) for step in task.phases[0])


@pytest.mark.parametrize("weighting", ["samples", "batches"])
def test_every_client_counts_once_whatever_the_weighting(weighting):
    assert_same_run(
        train("perfedavg", weighting=weighting, beta_out=0.05, **BATCH_NORM),
        train("perfedavg", weighting="uniform", beta_out=0.05, **BATCH_NORM),
    )
    sizes = {len(task.indices) for task in tasks(build("perfedavg"))}
    assert len(sizes) > 1


def test_it_sends_what_fedavg_sends():
    cost = [[(r["bytes_up"], r["bytes_down"]) for r in train(m, **BATCH_NORM).history] for m in ("perfedavg", "fedavg")]
    assert cost[0] == cost[1]


def tuned_plainly(ran, client, alpha, beta, decay, carry):
    """Two single steps of SGD on the final model, on the first batch of two epochs."""
    setup, samples = ran.setup, ran.setup.problem.samples
    first, second = (setup.planner._epoch(setup.clients.train.indices(client, 2), 2, client, e)[0] for e in (0, 1))
    loss = plain.cross_entropy(plain.MLP, {}, samples.inputs, samples.labels)
    params = plain.local_sgd(loss, ran.state.params, [first.indices], alpha, 0.0, 0.0)
    after = plain.local_sgd(loss, params, [second.indices], beta, 0.0, decay)
    if not carry:
        return after
    first_gradient = {n: (ran.state.params[n] - params[n]) / alpha for n in params}
    return {n: w - beta * MOMENTUM * first_gradient[n] for n, w in after.items()}


@pytest.mark.parametrize(
    ("alpha_in", "alpha", "persist", "carry"),
    [("auto", 0.05, False, False), ("auto", 0.05, True, False), (0.4, 0.4, True, False), (0.4, 0.4, False, True)],
)
def test_own_models_are_the_final_model_after_one_step_of_each_kind(alpha_in, alpha, persist, carry):
    knobs = {"alpha_in": alpha_in, "beta_out": 0.03, "persist": persist, "carry_momentum": carry}
    ran = train("perfedavg", **knobs, **{"evaluation.protocol": "ft"})
    setup, inputs, labels = ran.setup, *ran.setup.test.batch(torch.arange(40))
    (phases,) = tuning_stages(setup.method, "ft")
    for row in ran.driver.clients:
        client, mine = row["client"], setup.clients.part(row["client"])
        task = setup.planner.task(2, client, tuple(_plan(phase) for phase in phases))
        ((_, state),) = setup.engine.adapt(ran.state, [task], lambda k: ran.driver._store.get(k, 2), 0.05, phases)
        params, _, _ = personal_model(setup.problem, ran.state, state)
        assert_close(params, tuned_plainly(ran, client, alpha, 0.03, DECAY, carry), 1e-12)
        z = plain.features(plain.MLP, params, {}, inputs[mine], training=False)
        right = (z @ params["head.weight"].T + params["head.bias"]).argmax(1) == labels[mine]
        assert row["accuracy"] == pytest.approx(100 * right.double().mean().item(), abs=1e-10)


def _plan(phase):
    return PhasePlan(phase.epochs, phase.steps)


@pytest.mark.parametrize("protocol", ["ft", "gapa", "final"])
@pytest.mark.parametrize("name", ["perfedavg", "perfedavg-ft"])
def test_every_protocol_that_measures_it_takes_two_steps(protocol, name):
    setup = build(name, **{"evaluation.protocol": protocol})
    (phases,) = tuning_stages(setup.method, protocol)
    assert [(phase.steps, phase.sgd.lr, phase.lookahead) for phase in phases] == [(1, None, None), (1, 0.001, None)]


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"alpha_in": -0.1}, "alpha_in=-0.1: expected a number from 0 on"),
        ({"alpha_in": float("nan")}, "alpha_in=nan"),
        ({"beta_out": 0.0}, "beta_out=0.0: expected a number above 0"),
        ({"beta_out": float("inf")}, "beta_out=inf"),
    ],
)
def test_bad_rates_are_refused(knobs, message):
    with pytest.raises(Misconfigured, match=message):
        perfedavg(**knobs)
