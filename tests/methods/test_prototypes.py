"""Prototypes: pooled mean, carry-over, masks, weights, transforms, cost."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedblade.core.method import InitView
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.core.outcome import train_client
from fedblade.core.state import MemoryStore
from fedblade.core.tree import tree_bytes
from fedblade.server import no_prototypes
from support.small_federation import (
    BATCH_NORM,
    CNN,
    DIM,
    NUM_CLASSES,
    assert_different,
    assert_same_bits,
    assert_same_run,
    build,
    images,
    tasks,
    train,
)


def prototypes(ran):
    return ran.state.extra["prototypes"]


def sums_of(setup, task):
    return train_client(setup.problem, setup.start, task, None, 0.05).sums


def frozen(setup, cohort):
    """A round in which nobody moves, so that all clients share the server's model."""
    return setup.engine.train(setup.start, cohort, MemoryStore(), 0.0, lambda client: None).sums


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_with_one_model_they_are_the_mean_over_the_pooled_samples(norm):
    setup = build("fedblade", weight_decay=0.0, **{"model.norm": norm})
    problem = setup.problem
    moving_statistics = norm == "batch"
    sums = frozen(setup, tasks(setup))
    new = setup.method.server(setup.start, sums).extra["prototypes"]
    pooled = []
    for task in tasks(setup):
        buffers = setup.start.buffers
        if moving_statistics:
            received = receive(problem, setup.start, task, None, 0.0)
            buffers = local_train(problem, received)[0].buffers
        inputs, labels = problem.samples.batch(task.indices)
        pooled.append((problem.network.features(setup.start.params, buffers, inputs, training=False), labels))
    z, y = torch.cat([a for a, _ in pooled]), torch.cat([b for _, b in pooled])
    expected = torch.stack([z[y == c].mean(0) for c in range(NUM_CLASSES)])
    torch.testing.assert_close(new["mean"], expected, rtol=0, atol=1e-12)
    assert new["has"].all()


def test_local_prototypes_are_class_sums_of_the_trained_model():
    setup = build("fedblade", **BATCH_NORM)
    task, problem = tasks(setup)[0], setup.problem
    row, _ = local_train(problem, receive(problem, setup.start, task, None, 0.05))
    inputs, labels = problem.samples.batch(task.indices)
    z = problem.network.features(row.params, row.buffers, inputs, training=False)
    sent = sums_of(setup, task)["prototypes"]
    for label in range(NUM_CLASSES):
        torch.testing.assert_close(sent["sum"][label], z[labels == label].sum(0), rtol=1e-13, atol=1e-13)
    assert torch.equal(sent["count"], task.counts.double())


def test_the_pass_changes_neither_weights_nor_statistics_nor_batches():
    """FedBlade without any term sends FedETF's model: the pass leaves no trace."""
    with_pass, without = build("fedblade", lambda_decorr=0.0, **BATCH_NORM), build("fedetf", **BATCH_NORM)
    for task, other in zip(tasks(with_pass), tasks(without), strict=True):
        mine, theirs = sums_of(with_pass, task), sums_of(without, other)
        for name in ("delta", "buffers", "counters", "weight"):
            assert_same_bits(mine[name], theirs[name])
    assert "prototypes" in mine
    assert "prototypes" not in theirs


def test_in_the_first_round_alignment_is_silent():
    """Values and gradients are exactly zero until prototypes exist."""
    blade, etf = train("fedblade", rounds=1, lambda_decorr=0.0), train("fedetf", rounds=1)
    assert_same_bits(blade.state.params, etf.state.params)
    assert (blade.history[0]["loss_pa"], blade.history[0]["loss_fa"]) == (0, 0)
    assert not build("fedblade").start.extra["prototypes"]["has"].any()


def test_from_the_second_round_alignment_speaks():
    ran = train("fedblade", lambda_decorr=0.0)
    assert ran.history[1]["loss_pa"] > 0
    assert ran.history[1]["loss_fa"] > 0
    assert_different(ran.state.params, train("fedetf").state.params)


def test_classes_nobody_has_shown_stay_masked():
    ran = train("fedblade", rounds=1, clients_per_round=1)
    counts = ran.setup.clients.train.table()[ran.history[0]["clients"][0]]
    assert 0 < (counts > 0).sum() < NUM_CLASSES
    assert torch.equal(prototypes(ran)["has"], torch.from_numpy(counts > 0))
    assert not prototypes(ran)["mean"][~prototypes(ran)["has"]].any()
    assert ran.history[0]["num_prototypes"] == (counts > 0).sum()


def one_by_one(carry_over):
    """Four rounds of one client each, client after client."""
    setup = build("fedblade", rounds=4, clients_per_round=1, **{"proto.carry_over": carry_over})
    state, states = setup.start, []
    for round_, client in enumerate((1, 0, 2, 1)):
        task = setup.planner.task(round_, client)
        sums = setup.engine.train(state, [task], MemoryStore(), 0.05, lambda client: None).sums
        state = setup.method.server(state, sums).replace(round=round_ + 1)
        states.append(state.extra["prototypes"])
    return setup.clients.train.table() > 0, states


def test_a_class_absent_from_the_cohort_keeps_its_prototype():
    held, states = one_by_one(carry_over=True)
    seen = held[1]
    for client, before, after in zip((0, 2, 1), states[:-1], states[1:], strict=True):
        absent = torch.from_numpy(~held[client])
        assert torch.equal(after["mean"][absent], before["mean"][absent])
        assert not torch.equal(after["mean"][~absent], before["mean"][~absent])
        seen = seen | held[client]
        assert np.array_equal(after["has"].numpy(), seen)


def test_without_carry_over_it_loses_it():
    held, states = one_by_one(carry_over=False)
    for client, after in zip((1, 0, 2, 1), states, strict=True):
        assert np.array_equal(after["has"].numpy(), held[client])
        assert not after["mean"][~after["has"]].any()


def test_carry_over_is_irrelevant_while_every_class_shows_up():
    runs = [train("fedblade", **{"proto.carry_over": flag}) for flag in (True, False)]
    assert_same_run(*runs)


def test_uniform_weights_count_every_holder_once():
    setup = build("fedblade", **{"proto.weight": "uniform"})
    sums = [sums_of(build("fedblade"), task)["prototypes"] for task in tasks(setup)]
    sent = setup.engine.train(setup.start, tasks(setup), MemoryStore(), 0.05, lambda client: None).sums
    new = setup.method.server(setup.start, sent).extra["prototypes"]
    for label in range(NUM_CLASSES):
        means = [s["sum"][label] / s["count"][label] for s in sums if s["count"][label] > 0]
        torch.testing.assert_close(new["mean"][label], torch.stack(means).mean(0), rtol=1e-13, atol=1e-14)
    assert sent["prototypes"]["count"].tolist() == [sum(int(t.counts[c] > 0) for t in tasks(setup)) for c in range(5)]


def test_count_and_uniform_weights_differ():
    runs = [train("fedblade", **{"proto.weight": w}) for w in ("count", "uniform")]
    assert_different(prototypes(runs[0]), prototypes(runs[1]))


AUGMENTED = {**CNN, "dataset.augment": "crop_flip"}


def test_plain_prototypes_see_plain_inputs():
    """The default pass looks at unaugmented samples even where training augments."""
    setup = build("fedblade", images(), **AUGMENTED)
    task, problem = tasks(setup)[0], setup.problem
    row, _ = local_train(problem, receive(problem, setup.start, task, None, 0.05))
    z = problem.network.features(row.params, row.buffers, problem.samples.inputs[task.indices], training=False)
    assert task.pass_draws is None
    torch.testing.assert_close(sums_of(setup, task)["prototypes"]["sum"].sum(0), z.sum(0), rtol=1e-12, atol=1e-12)


def test_augmented_prototypes_see_augmented_inputs_with_draws_of_their_own():
    setup = build("fedblade", images(), **AUGMENTED, **{"proto.transform": "train"})
    task, problem = tasks(setup)[0], setup.problem
    row, _ = local_train(problem, receive(problem, setup.start, task, None, 0.05))
    changed = problem.samples.augment(problem.samples.inputs[task.indices], task.pass_draws)
    z = problem.network.features(row.params, row.buffers, changed, training=False)
    torch.testing.assert_close(sums_of(setup, task)["prototypes"]["sum"].sum(0), z.sum(0), rtol=1e-12, atol=1e-12)
    trained_on = torch.cat([b.draws for b in task.phases[0]])
    assert not np.intersect1d(trained_on.numpy(), task.pass_draws.numpy()).size


def test_the_transform_changes_prototypes_and_no_batch():
    plain, augmented = (
        build("fedblade", images(), **AUGMENTED, **{"proto.transform": kind}) for kind in ("eval", "train")
    )
    for a, b in zip(tasks(plain), tasks(augmented), strict=True):
        for x, y in zip(a.phases[0], b.phases[0], strict=True):
            assert torch.equal(x.indices, y.indices)
            assert torch.equal(x.draws, y.draws)
    one, other = sums_of(plain, tasks(plain)[1]), sums_of(augmented, tasks(augmented)[1])
    assert_same_bits(one["delta"], other["delta"])
    assert_different(one["prototypes"], other["prototypes"])


def test_the_transform_is_irrelevant_without_augmentation():
    runs = [train("fedblade", **{"proto.transform": kind}) for kind in ("eval", "train")]
    assert_same_run(*runs)


@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("float64", 8)])
def test_what_prototypes_cost(dtype, width):
    """C·d numbers down, and up one row of d per class held and its count."""
    overrides = {"dtype": dtype, "clients_per_round": 2}
    blade, etf = train("fedblade", **overrides), train("fedetf", **overrides)
    table = blade.setup.clients.train.table()
    for row, base in zip(blade.history, etf.history, strict=True):
        held = sum(int((table[client] > 0).sum()) for client in row["clients"])
        assert row["bytes_up"] - base["bytes_up"] == (held * DIM + held) * width
        mask = NUM_CLASSES
        assert row["bytes_down"] - base["bytes_down"] == 2 * (NUM_CLASSES * DIM * width + mask)


@pytest.mark.parametrize(
    ("classes", "dim", "kilobytes"), [(10, 1280, 50), (100, 1280, 500), (200, 1280, 1000), (100, 512, 200)]
)
def test_the_papers_table_of_prototype_sizes(classes, dim, kilobytes):
    """FedBlade Table 11, from the state the server would send in float32."""
    state = no_prototypes(InitView({"w": torch.zeros(1)}, dim, classes, 1))
    assert tree_bytes({"mean": state["mean"]}) == kilobytes * 1024


def test_everything_a_model_costs():
    ran = train("fedavg", clients_per_round=3, **BATCH_NORM)
    params = sum(v.numel() for v in ran.state.params.values())
    buffers = sum(v.numel() for v in ran.state.buffers.values())
    assert [row["bytes_up"] for row in ran.history] == [3 * 8 * (params + buffers + 1)] * 2
    assert [row["bytes_down"] for row in ran.history] == [3 * 8 * (params + buffers)] * 2


def test_a_client_with_one_class_sends_one_row():
    setup = build("fedblade")
    task = tasks(setup)[1]
    mine = task.indices[setup.problem.samples.labels[task.indices] == 0]
    counts = torch.zeros_like(task.counts)
    counts[0] = len(mine)
    batches = tuple(replace(b, indices=mine[:5]) for b in task.phases[0][:2])
    single = replace(task, num_samples=len(mine), draw_indices=lambda: mine, counts=counts, phases=(batches,))
    full = train_client(setup.problem, setup.start, task, None, 0.05)
    part = train_client(setup.problem, setup.start, single, None, 0.05)
    assert full.bytes_up - part.bytes_up == (DIM + 1) * 8
