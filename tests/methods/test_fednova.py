"""FedNova."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.outcome import train_client
from fedblade.methods.fednova import fednova
from support.small_federation import (
    BATCH_NORM,
    assert_close,
    assert_different,
    assert_same_bits,
    build,
    tasks,
    train,
    vectors,
)

LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}
EQUAL = {"partition": "iid"}


def applied(steps, momentum):
    """How often a gradient is applied on the whole: with momentum, each step also repeats the earlier ones."""
    total = buffer = 0.0
    for _ in range(steps):
        buffer = momentum * buffer + 1
        total += buffer
    return total


def reference(setup, norm, rounds, momentum):
    samples, params, buffers = setup.problem.samples, setup.start.params, setup.start.buffers
    ratios = []
    for round_ in range(rounds):
        updates, statistics, sizes, counts = [], [], [], []
        for client in setup.cohorts[round_]:
            task = setup.planner.task(round_, int(client))
            own = {n: v.clone() for n, v in buffers.items()}
            loss = plain.cross_entropy(LAYERS[norm], own, samples.inputs, samples.labels)
            model = {n: v.clone().requires_grad_() for n, v in params.items()}
            optimiser = torch.optim.SGD(model.values(), lr=0.05, momentum=momentum, weight_decay=1e-3)
            for batch in task.phases[0]:
                optimiser.zero_grad()
                loss(model, batch.indices).backward()
                optimiser.step()
            updates.append({n: v.detach() - params[n] for n, v in model.items()})
            statistics.append(own)
            sizes.append(len(task.indices))
            counts.append(applied(len(task.phases[0]), momentum))
        shares = [size / sum(sizes) for size in sizes]
        mean_count = sum(share * count for share, count in zip(shares, counts, strict=True))
        for share, update, count in zip(shares, updates, counts, strict=True):
            params = {n: w + mean_count * share * update[n] / count for n, w in params.items()}
        buffers = plain.weighted_mean(statistics, sizes)
        ratios.append(max(counts) / min(counts))
    return params, buffers, ratios


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("cohort", [4, 2])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_three_rounds_agree_with_a_plain_version(norm, cohort, momentum):
    ran = train("fednova", rounds=3, clients_per_round=cohort, momentum=momentum, **{"model.norm": norm})
    params, buffers, ratios = reference(ran.setup, norm, 3, momentum)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)
    assert [row["step_ratio"] for row in ran.history] == pytest.approx(ratios, rel=1e-12)
    assert min(ratios) > 1


def test_clients_that_finish_some_of_their_steps_count_the_steps_they_made():
    ran = train("fednova", vectors(160), rounds=3, partial_work=0.7, **EQUAL)
    params, _, ratios = reference(ran.setup, "none", 3, 0.9)
    assert_close(ran.state.params, params, 1e-9)
    assert [row["step_ratio"] for row in ran.history] == pytest.approx(ratios, rel=1e-12)
    assert min(ratios) > 1, "clients of equal size make as many steps where all of them finish"


def test_the_comparison_notices_another_step_count():
    ran = train("fednova", rounds=2, momentum=0.9)
    params, *_ = reference(ran.setup, "none", 2, 0.8999)
    with pytest.raises(AssertionError, match="body"):
        assert_close(ran.state.params, params, 1e-9)


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_with_equal_step_counts_it_is_fedavg(norm, momentum):
    overrides = {**EQUAL, "rounds": 3, "momentum": momentum, "model.norm": norm}
    nova, plainly = train("fednova", vectors(152), **overrides), train("fedavg", vectors(152), **overrides)
    assert {task.num_steps for task in tasks(nova.setup)} == {10}
    assert_close(nova.state.params, plainly.state.params, 1e-12)
    assert_close(nova.state.buffers, plainly.state.buffers, 1e-12)
    assert [row["step_ratio"] for row in nova.history] == [1.0, 1.0, 1.0]


def test_with_unequal_step_counts_it_is_not():
    nova, plainly = train("fednova", rounds=1, **BATCH_NORM), train("fedavg", rounds=1, **BATCH_NORM)
    assert len({task.num_steps for task in tasks(nova.setup)}) > 1
    assert_different(nova.state.params, plainly.state.params)
    assert_same_bits(nova.state.buffers, plainly.state.buffers)


@pytest.mark.parametrize(("momentum", "counts"), [(0.0, [1, 2, 5]), (0.5, [1.0, 2.5, 8.0625])])
def test_what_a_client_counts_as_its_steps(momentum, counts):
    """Without momentum the number of steps; with 0.5 the sum of 1, 1.5, 1.75, 1.875 and 1.9375 after five."""
    setup = build("fednova", momentum=momentum, **{"local.epochs": 5})
    task = tasks(setup)[2]
    for steps, expected in zip((1, 2, 5), counts, strict=True):
        short = replace(task, phases=(task.phases[0][:steps],))
        sums = train_client(setup.problem, setup.start, short, None, 0.05).sums
        assert sums.scalar("steps") == pytest.approx(task.weight * expected, rel=1e-14)
        assert (sums["step_range"]["most"], sums["step_range"]["least"]) == (expected, -expected)


def test_the_ratio_is_that_of_the_cohort():
    """Over any order and grouping of the clients, the most steps over the least."""
    setup = build("fednova", momentum=0.0)
    cohort = tasks(setup)
    steps = [task.num_steps for task in cohort]
    sent = [train_client(setup.problem, setup.start, task, None, 0.05).sums for task in cohort]
    for total in ((sent[0] + sent[1]) + (sent[2] + sent[3]), sent[3] + (sent[1] + (sent[0] + sent[2]))):
        after = setup.method.server(setup.start, total)
        assert setup.method.gauges["step_ratio"](after) == max(steps) / min(steps) > 1


def test_three_numbers_more_travel_than_with_fedavg():
    nova, plainly = (train(method, **BATCH_NORM).history for method in ("fednova", "fedavg"))
    for mine, other in zip(nova, plainly, strict=True):
        assert mine["bytes_up"] - other["bytes_up"] == 4 * 3 * 8
        assert mine["bytes_down"] == other["bytes_down"]


def test_parts_that_stay_on_the_client_are_not_sent():
    ran = train(replace(fednova(), personal=("head",)), **BATCH_NORM)
    sent = train_client(ran.setup.problem, ran.state, tasks(ran.setup)[0], None, 0.05).sums
    heads = {n for n in ran.state.params if n.startswith("head.")}
    assert sent["normalised"].keys() == ran.state.params.keys() - heads
    assert all(torch.equal(ran.state.params[n], ran.setup.start.params[n]) for n in heads)
