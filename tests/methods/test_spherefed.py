"""SphereFed, its calibration and the `-ft` variant."""

from dataclasses import replace

import pytest
import torch

import fedblade
import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.one_client import OneClient, receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.core.passes import PassData, PassModel
from fedblade.core.problem import PERSONAL
from fedblade.core.state import MemoryStore
from fedblade.core.views import StepView
from fedblade.methods.spherefed import _MOMENTS, spherefed
from fedblade.results import RunDirectory
from fedblade.runs._checkpoints import Checkpoints
from support.one_client import adapt_client
from support.small_federation import (
    BATCH_NORM,
    DIM,
    NUM_CLASSES,
    assert_close,
    assert_different,
    assert_same_bits,
    build,
    tasks,
    train,
    vectors,
)

LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}
MATCHED = {"dataset.test_split": "matched"}


@pytest.mark.parametrize("calibrate", [False, True])
def test_class_vectors_are_orthonormal_and_survive_training(calibrate):
    ran = train("spherefed", calibrate=calibrate, rounds=3)
    W = ran.setup.start.fixed["head.weight"]
    torch.testing.assert_close(W @ W.T, torch.eye(NUM_CLASSES, dtype=W.dtype), rtol=0, atol=2e-6)
    assert torch.equal(ran.state.fixed["head.weight"], W) != calibrate
    assert all(name.startswith("body.") for name in ran.state.params)


def squared_loss(layers, buffers, samples, W):
    """(1/NC) Σ_i Σ_c (w_cᵀz_i/‖z_i‖ − 1{c = y_i})², entry by entry."""

    def loss(params, indices):
        z = plain.features(layers, params, buffers, samples.inputs[indices], training=True)
        total = 0.0
        for i, label in enumerate(samples.labels[indices].tolist()):
            length = z[i].norm().clamp(min=1e-12)
            for c in range(len(W)):
                total = total + ((W[c] * z[i]).sum() / length - float(c == label)) ** 2
        return total / (len(indices) * len(W))

    return loss


def by_hand(setup, norm, params, buffers, task):
    own = {n: v.clone() for n, v in buffers.items()}
    loss = squared_loss(LAYERS[norm], own, setup.problem.samples, setup.start.fixed["head.weight"])
    return plain.local_sgd(loss, params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3), own


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_two_rounds_agree_with_the_plain_version(norm):
    ran = train("spherefed", epochs=1, clients_per_round=3, **{"model.norm": norm})
    setup, params, buffers = ran.setup, ran.setup.start.params, ran.setup.start.buffers
    for round_ in range(2):
        each = [setup.planner.task(round_, int(client)) for client in setup.cohorts[round_]]
        made = [by_hand(setup, norm, params, buffers, task) for task in each]
        sizes = [len(task.indices) for task in each]
        params, buffers = (plain.weighted_mean([pair[i] for pair in made], sizes) for i in (0, 1))
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)


def test_scaling_the_features_leaves_the_loss():
    """The last layer is rectified, so its weights scale the features."""
    setup, losses = build("spherefed"), []
    task = tasks(setup)[0]
    for factor in (1.0, 7.0):
        params = {n: v * factor if n.startswith("body.layers.2") else v for n, v in setup.start.params.items()}
        received = receive(setup.problem, setup.start.replace(params=params), task, None, 0.05)
        losses.append(local_train(setup.problem, received)[1][0]["loss_supervised"].item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-13)
    assert losses[0] > 0.05


def test_features_along_their_class_vector_cost_nothing():
    method, setup = spherefed(), build("spherefed")
    labels = torch.arange(NUM_CLASSES)
    features = torch.arange(1.0, 6.0, dtype=torch.float64)[:, None] * setup.start.fixed["head.weight"]
    value = method.losses[0](view_of(setup, features, labels)).value
    assert value < 1e-12


def view_of(setup, features, labels, mask=None):
    head, fixed = setup.problem.network.head, setup.start.fixed
    counts = torch.zeros(NUM_CLASSES, dtype=torch.int64)
    return StepView({}, {}, fixed, head, features, head({}, fixed, features), labels, counts, {}, {}, 0, mask)


def pooled(ran):
    """Unit features and one-hot labels of all training samples, under the final model."""
    state, samples = ran.state, ran.setup.problem.samples
    z = plain.features(LAYERS["batch"], state.params, {**state.buffers}, samples.inputs, training=False)
    return plain.unit(z), torch.eye(NUM_CLASSES, dtype=z.dtype)[samples.labels]


@pytest.mark.parametrize("ridge", [1e-4, 3.0])
def test_calibration_is_ridge_regression_on_the_pooled_data(ridge):
    """Least squares on the data with sqrt(ridge)·I appended, which forms no second moments."""
    ran = train("spherefed", calibrate=True, ridge=ridge, clients_per_round=2, **BATCH_NORM)
    u, e = pooled(ran)
    rows = torch.cat([u, ridge**0.5 * torch.eye(DIM, dtype=u.dtype)])
    targets = torch.cat([e, torch.zeros(DIM, NUM_CLASSES, dtype=u.dtype)])
    expected = torch.linalg.lstsq(rows, targets, driver="gelsd").solution.T
    torch.testing.assert_close(ran.state.fixed["head.weight"], expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_calibration_lowers_the_objective_it_minimises(norm):
    ran = train("spherefed", calibrate=True, **{"model.norm": norm})
    samples = ran.setup.problem.samples
    z = plain.features(LAYERS[norm], ran.state.params, {**ran.state.buffers}, samples.inputs, training=False)
    e = torch.eye(NUM_CLASSES, dtype=z.dtype)[samples.labels]

    def objective(W, ridge=1e-4):
        return (plain.unit(z) @ W.T - e).square().sum() + ridge * W.square().sum()

    W, before = ran.state.fixed["head.weight"], ran.setup.start.fixed["head.weight"]
    assert objective(W) < objective(before)
    assert objective(W, 0.0) <= objective(before, 0.0)
    for seed in range(5):
        nudge = 1e-3 * torch.randn(W.shape, dtype=W.dtype, generator=torch.manual_seed(seed))
        assert objective(W) < objective(W + nudge)


def test_calibration_exists_where_there_are_fewer_samples_than_dimensions():
    ran = train("spherefed", vectors(12, 10), calibrate=True, num_clients=2, clients_per_round=2, partition="iid")
    assert torch.isfinite(ran.state.fixed["head.weight"]).all()
    assert len(ran.setup.problem.samples) < DIM


def test_calibration_changes_nothing_but_the_classifier_at_the_end():
    ran, off = train("spherefed", calibrate=True, **BATCH_NORM), train("spherefed", **BATCH_NORM)
    assert_same_bits(ran.state.params, off.state.params)
    assert_same_bits(ran.state.buffers, off.state.buffers)
    assert_same_bits(off.state.fixed, off.setup.start.fixed)
    assert [row["test_accuracy"] for row in ran.history] == [row["test_accuracy"] for row in off.history]


def test_the_calibrated_model_is_measured_beside_the_other():
    ran = train("spherefed", calibrate=True, **BATCH_NORM)
    samples = ran.setup.test
    z = plain.features(LAYERS["batch"], ran.state.params, {**ran.state.buffers}, samples.inputs, training=False)
    values = [
        100 * ((z @ fixed["head.weight"].T).argmax(1) == samples.labels).double().mean().item()
        for fixed in (ran.setup.start.fixed, ran.state.fixed)
    ]
    last = ran.history[-1]
    assert [last["test_accuracy"], last["calibrated_accuracy"]] == pytest.approx(values, abs=1e-10)
    assert values[0] != values[1]
    assert "calibrated_accuracy" not in ran.history[0]


def test_the_calibrated_model_is_the_one_that_is_saved(tmp_path):
    data = vectors()
    parts = (data.train.inputs, data.train.labels, data.test.inputs, data.test.labels)
    knobs = {"dataset": parts, "model": "mlp", "model.dim": DIM, "rounds": 2, "dtype": "float64"}
    knobs |= {"partition": "iid", "num_clients": 4, "clients_per_round": 4}
    result = fedblade.run("quickstart", method="spherefed", calibrate=True, out=tmp_path / "run", **knobs)
    assert result.summary["final_accuracy"] == result.history[-1]["calibrated_accuracy"]
    assert result.summary["accuracy"] == result.summary["final_accuracy"]
    inputs = torch.from_numpy(data.test.inputs)
    with torch.no_grad():
        torch.testing.assert_close(fedblade.load(tmp_path / "run")(inputs), result.model(inputs), rtol=0, atol=0)
        off = fedblade.run("quickstart", method="spherefed", **knobs).model(inputs)
    assert not torch.allclose(result.model(inputs), off)


def test_a_checkpoint_holds_the_calibrated_classifier(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.open(resume=False)
    ran = train("spherefed", directory=directory, calibrate=True)
    restored = Checkpoints(directory).restore(ran.setup.start, MemoryStore(), interval=1)
    assert_same_bits(restored.state.flat(), ran.state.flat())


def test_what_calibration_sends_is_counted():
    ran, off = train("spherefed", calibrate=True), train("spherefed")
    held = int((ran.setup.clients.train.table() > 0).sum())
    up = [a["bytes_up"] - b["bytes_up"] for a, b in zip(ran.history, off.history, strict=True)]
    assert up == [0, (4 * DIM * DIM + held * DIM) * 8]


def test_the_moments_are_those_of_unit_features_and_leave_padding_out():
    setup = build("spherefed")
    z = torch.randn(6, DIM, dtype=torch.float64, generator=torch.manual_seed(0))
    z[2] = 0
    labels = torch.tensor([0, 3, 3, 1, 0, 4])
    full = _MOMENTS.of(view_of(setup, z, labels))
    gram, sums = torch.zeros(DIM, DIM, dtype=z.dtype), torch.zeros(NUM_CLASSES, DIM, dtype=z.dtype)
    for row, label in zip(z, labels.tolist(), strict=True):
        u = row / row.norm().clamp(min=1e-12)
        gram += torch.outer(u, u)
        sums[label] += u
    assert_close(full, {"gram": gram, "sum": sums}, 1e-14)
    garbage = torch.cat([z, torch.full((2, DIM), torch.nan, dtype=z.dtype)])
    mask = torch.tensor([1.0] * 6 + [0.0] * 2, dtype=z.dtype)
    padded = _MOMENTS.of(view_of(setup, garbage, torch.cat([labels, torch.tensor([99, -1])]), mask))
    assert_close(padded, full, 1e-14)


def test_moments_of_many_clients_at_once():
    """Engines add a client axis."""
    setup = build("spherefed")
    z = torch.randn(3, 6, DIM, dtype=torch.float64, generator=torch.manual_seed(0))
    labels, mask = torch.arange(18).reshape(3, 6) % NUM_CLASSES, torch.ones(3, 6, dtype=z.dtype).triu()
    together = torch.vmap(lambda *client: _MOMENTS.of(view_of(setup, *client)))(z, labels, mask)
    for k in range(3):
        assert_close(
            {n: v[k] for n, v in together.items()}, _MOMENTS.of(view_of(setup, z[k], labels[k], mask[k])), 1e-13
        )


def test_moments_add_up_over_batches_of_a_pass():
    setup = build("spherefed", vectors(300))
    start, samples = setup.start, setup.problem.samples
    counts = torch.zeros(NUM_CLASSES, dtype=torch.int64)
    model = PassModel(start.params, start.buffers, start.fixed, counts)
    found = OneClient(setup.problem).run_passes([_MOMENTS], model, PassData(samples, [torch.arange(300)]))
    u = plain.unit(plain.features(plain.MLP, start.params, {}, samples.inputs, training=False))
    assert_close({"gram": found["unit_moments"]["gram"]}, {"gram": u.T @ u}, 1e-11)


@pytest.mark.parametrize("calibrate", [False, True])
def test_fine_tuning_trains_the_body_against_the_final_classifier(calibrate):
    ran = train("spherefed-ft", vectors(150, 100), calibrate=calibrate, epochs=1, **BATCH_NORM, **MATCHED)
    assert ran.setup.method.own.tuning["ft"] == (ran.setup.method.phases,)
    fixed, values = ran.state.fixed, []
    assert_different(ran.state.params, ran.setup.start.params)
    for client in range(4):
        task = ran.setup.planner.task(2, client)
        final = replace(ran.setup, start=ran.state)
        body, own = by_hand(final, "batch", ran.state.params, ran.state.buffers, task)
        tuned = adapt_client(ran.setup.problem, ran.state, task, None, 0.05, ran.setup.method.phases).state
        assert_close(tuned[PERSONAL], body, 1e-9)
        part = torch.from_numpy(ran.setup.clients.part(client))
        z = plain.features(LAYERS["batch"], body, own, ran.setup.test.inputs[part], training=False)
        hits = (z @ fixed["head.weight"].T).argmax(1) == ran.setup.test.labels[part]
        values.append(100 * hits.double().mean().item())
    assert [row["accuracy"] for row in ran.driver.clients] == pytest.approx(values, abs=1e-10)
    assert torch.equal(fixed["head.weight"], ran.setup.start.fixed["head.weight"]) != calibrate


@pytest.mark.parametrize("ridge", [0.0, -1.0, float("nan"), float("inf")])
def test_a_ridge_that_is_not_positive_is_refused(ridge):
    with pytest.raises(Misconfigured, match=r"ridge=.*expected a number above 0"):
        spherefed(ridge=ridge)


def test_more_classes_than_dimensions_are_refused():
    with pytest.raises(Misconfigured, match="orthonormal class vectors need at least 5 dimensions"):
        build("spherefed", **{"model.dim": NUM_CLASSES - 1})
