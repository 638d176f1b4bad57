"""FedETF, its balanced cross-entropy and its fixed classifier."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.losses import CrossEntropy
from fedblade.methods.fedetf import fedetf
from support.small_federation import (
    BATCH_NORM,
    NUM_CLASSES,
    assert_close,
    assert_different,
    assert_same_bits,
    build,
    tasks,
    train,
    vectors,
)

FIXED_SCALE = {"scale.learnable": False}


def trained(setup, task):
    return local_train(setup.problem, receive(setup.problem, setup.start, task, None, 0.05))


def test_it_starts_with_a_projector_a_scale_of_one_and_a_fixed_frame():
    setup = build("fedetf")
    start = setup.start
    assert start.params["projector.weight"].shape == (NUM_CLASSES, 16)
    assert start.params["scale"] == 1
    assert start.fixed["etf"].shape == (NUM_CLASSES, NUM_CLASSES)
    assert "head.weight" not in start.params


@pytest.mark.parametrize("dim", ["auto", NUM_CLASSES - 1, 3 * NUM_CLASSES])
@pytest.mark.parametrize("method", ["fedetf", "fedblade"])
def test_the_frame_is_an_etf_and_survives_training(method, dim):
    ran = train(method, proj_dim=dim)
    assert_same_bits(ran.state.fixed, ran.setup.start.fixed)
    V = ran.state.fixed["etf"]
    assert V.shape == (NUM_CLASSES if dim == "auto" else dim, NUM_CLASSES)
    expected = torch.full((NUM_CLASSES, NUM_CLASSES), -1 / (NUM_CLASSES - 1), dtype=V.dtype).fill_diagonal_(1)
    torch.testing.assert_close(V.T @ V, expected, rtol=0, atol=2e-6)
    torch.testing.assert_close(V.sum(1), torch.zeros_like(V[:, 0]), rtol=0, atol=2e-6)
    assert torch.linalg.matrix_rank(V, atol=1e-5) == NUM_CLASSES - 1


@pytest.mark.parametrize("method", ["fedetf", "fedblade"])
def test_local_training_cannot_reach_the_frame(method):
    setup = build(method)
    received = receive(setup.problem, setup.start, tasks(setup)[0], None, 0.05)
    before = received.fixed["etf"].clone()
    local_train(setup.problem, received)
    assert torch.equal(received.fixed["etf"], before)
    assert received.fixed["etf"].grad is None
    assert not received.fixed["etf"].requires_grad


def test_without_balance_and_with_scale_one_it_is_cross_entropy_of_cosines():
    """The reference is written in plain PyTorch."""
    setup = build("fedetf", gamma_bal=0.0, **FIXED_SCALE)
    samples, task, etf = setup.problem.samples, tasks(setup)[2], setup.start.fixed["etf"]

    def loss(params, indices):
        z = plain.features(plain.MLP, params, {}, samples.inputs[indices], training=True)
        projected = z @ params["projector.weight"].T + params["projector.bias"]
        cosines = torch.nn.functional.cosine_similarity(projected[:, None], etf.T[None], dim=2)
        return torch.nn.functional.cross_entropy(cosines, samples.labels[indices])

    expected = plain.local_sgd(loss, setup.start.params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3)
    # the frame is stored in float32: its columns have unit length to 1e-7
    assert_close(trained(setup, task)[0].params, expected, 1e-6)


def test_without_balance_it_is_the_plain_loss_bit_for_bit():
    plain_loss = replace(fedetf(), losses=(CrossEntropy(),))
    a, b = train("fedetf", gamma_bal=0.0), train(plain_loss)
    assert_same_bits(a.state.params, b.state.params)


def even_task(setup, gamma=None):
    """A client's task with as many samples of every class as of any other."""
    task = tasks(setup)[2]
    return replace(task, counts=torch.full_like(task.counts, 9))


def test_balance_is_irrelevant_for_even_counts():
    results = []
    for gamma in (0.0, 1.0, 2.5):
        setup = build("fedetf", gamma_bal=gamma)
        results.append(trained(setup, even_task(setup))[0].params)
    assert_close(results[1], results[0], 1e-12)
    assert_close(results[2], results[0], 1e-12)


def test_balance_matters_for_uneven_counts():
    assert_different(train("fedetf", gamma_bal=0.0).state.params, train("fedetf").state.params)


def counted(setup, factor):
    task = tasks(setup)[2]
    return replace(task, counts=task.counts * factor)


def test_only_proportions_of_counts_matter():
    setup = build("fedetf")
    assert tasks(setup)[2].counts.min() >= 1
    results = [trained(setup, counted(setup, f))[0].params for f in (1, 7)]
    assert_close(*results, 1e-12)


def test_floors_differ_through_missing_classes_only():
    """Floor 0 takes a missing class out of the softmax, floor 1 counts it once."""
    zero, one = build("fedetf", count_floor=0), build("fedetf", count_floor=1)
    complete, missing = tasks(one)[2], tasks(one)[1]
    assert complete.counts.min() >= 1
    assert missing.counts.min() == 0
    assert_same_bits(trained(zero, complete)[0].params, trained(one, complete)[0].params)
    assert_different(trained(zero, missing)[0].params, trained(one, missing)[0].params)
    assert all(torch.isfinite(v).all() for v in trained(zero, missing)[0].params.values())


def test_floor_zero_is_a_softmax_over_the_classes_held():
    setup = build("fedetf", count_floor=0)
    samples, task, etf = setup.problem.samples, tasks(setup)[1], setup.start.fixed["etf"]
    held = task.counts.nonzero().flatten()
    place = {int(c): i for i, c in enumerate(held)}

    def loss(params, indices):
        z = plain.features(plain.MLP, params, {}, samples.inputs[indices], training=True)
        u = plain.unit(z @ params["projector.weight"].T + params["projector.bias"])
        logits = params["scale"] * (u @ etf)[:, held] + task.counts[held].double().log()
        targets = torch.tensor([place[int(c)] for c in samples.labels[indices]])
        return torch.nn.functional.cross_entropy(logits, targets)

    expected = plain.local_sgd(loss, setup.start.params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3)
    assert_close(trained(setup, task)[0].params, expected, 1e-12)


def test_a_projector_without_bias_is_one_whose_bias_is_zero():
    """The code of FedDr+: no bias, and a softmax over the classes held."""
    knobs = {"weight_decay": 0.0, "count_floor": 0}
    bare, full = build("fedetf", projector_bias=False, **knobs), build("fedetf", **knobs)
    assert full.start.params.keys() - bare.start.params.keys() == {"projector.bias"}
    assert_same_bits(bare.start.params, {n: full.start.params[n] for n in bare.start.params})
    z = torch.randn(3, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    zero = full.start.params | {"projector.bias": torch.zeros(NUM_CLASSES, dtype=torch.float64)}
    found, expected = (
        setup.problem.network.output(params, setup.start.fixed, z).logits
        for setup, params in ((bare, bare.start.params), (full, zero))
    )
    assert_same_bits({"logits": found}, {"logits": expected})
    assert_different(trained(bare, tasks(bare)[0])[0].params, bare.start.params)


def test_scaling_the_projection_leaves_the_loss():
    setup = build("fedetf")
    larger = {n: v * 3 if n.startswith("projector") else v for n, v in setup.start.params.items()}
    losses = []
    for params in (setup.start.params, larger):
        start = setup.start.replace(params=params)
        task = replace(tasks(setup)[0], phases=((tasks(setup)[0].phases[0][0],),))
        _, trace = local_train(setup.problem, receive(setup.problem, start, task, None, 0.05))
        losses.append(trace[0]["loss_supervised"].item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-14)


def test_a_fixed_scale_stays_and_is_not_averaged():
    ran = train("fedetf", **FIXED_SCALE)
    assert "scale" not in ran.state.params
    assert ran.state.fixed["scale"] == 1
    assert [row["scale"] for row in ran.history] == [1.0, 1.0]


def test_the_learnable_scale_is_averaged_and_shown():
    ran = train("fedetf", rounds=1)
    setup = ran.setup
    sizes, scales = zip(
        *((len(t.indices), trained(setup, t)[0].params["scale"].item()) for t in tasks(setup)), strict=True
    )
    expected = sum(n * s for n, s in zip(sizes, scales, strict=True)) / sum(sizes)
    assert ran.state.params["scale"].item() == pytest.approx(expected, rel=1e-12)
    assert ran.history[0]["scale"] == ran.state.params["scale"].item()


PUSHED_DOWN = {"weight_decay": 5.0, "momentum": 0.0, "rounds": 1}


@pytest.mark.parametrize("method", ["fedetf", "fedblade"])
def test_a_scale_pushed_below_its_bound_is_clamped_and_counted(method):
    """The decay takes at least a tenth off the scale in every step, so every step binds."""
    ran = train(method, **PUSHED_DOWN, **{"scale.min": 1.0})
    steps = sum(task.num_steps for task in tasks(ran.setup))
    assert ran.history[0]["count_scale_clamped"] == steps
    assert ran.state.params["scale"] == 1.0


def test_no_bound_no_clamp():
    ran = train("fedetf", **PUSHED_DOWN, **{"scale.min": "none"})
    assert ran.state.params["scale"] < 0.9
    assert "count_scale_clamped" not in ran.history[0]


def test_the_bound_does_not_bind_in_a_normal_run():
    assert all(row["count_scale_clamped"] == 0 for row in train("fedblade", **BATCH_NORM).history)


def test_without_a_projector_the_frame_has_the_width_of_the_features():
    setup = build("fedetf", projector=False)
    assert setup.start.fixed["etf"].shape == (16, NUM_CLASSES)
    assert "projector.weight" not in setup.start.params
    samples, start = setup.problem.samples, setup.start
    z = setup.problem.network.features(start.params, {}, samples.inputs[:7], training=False)
    logits = setup.problem.network.output(start.params, start.fixed, z).logits
    torch.testing.assert_close(logits, plain.unit(z) @ start.fixed["etf"], rtol=1e-14, atol=1e-15)


def test_predictions_do_not_depend_on_the_scale():
    ran = train("fedetf")
    test = ran.setup.test
    results = []
    for scale in (0.01, 1.0, 50.0):
        state = ran.state.replace(params={**ran.state.params, "scale": torch.tensor(scale, dtype=torch.float64)})
        totals = ran.setup.engine.measure(state, test, ran.setup.test_order, ran.setup.accuracy.passes)
        results.append(ran.setup.accuracy.finish(totals)["test_accuracy"])
    assert len(set(results)) == 1


def test_the_frame_is_sent_once():
    ran = train("fedetf", rounds=3)
    first, second, third = (row["bytes_down"] for row in ran.history)
    assert first - second == 4 * NUM_CLASSES * NUM_CLASSES * 8
    assert second == third
    assert vectors().num_classes == NUM_CLASSES
