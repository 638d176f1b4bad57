"""FedNH: prototypes on the sphere as the classifier."""

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.outcome import train_client
from fedblade.core.state import ServerState
from fedblade.core.sums import Sums
from fedblade.heads import Scale
from fedblade.methods.fednh import fednh
from fedblade.server import move_prototypes
from support.small_federation import BATCH_NORM, DIM, NUM_CLASSES, assert_close, assert_same_bits, build, tasks, train

LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}


def clamp(params):
    if "scale" in params:
        params["scale"].clamp_(min=1e-3)


def reference(setup, norm, rounds, rho=0.9, lr=0.05, fixed=30.0):
    layers, samples, start = LAYERS[norm], setup.problem.samples, setup.start
    params = {name: leaf for name, leaf in start.params.items() if name != "head.weight"}
    rows, buffers = start.params["head.weight"], start.buffers
    for round_ in range(rounds):
        models, statistics, sizes, seen = [], [], [], {}
        for client in setup.cohorts[round_].tolist():
            task = setup.planner.task(round_, client)
            own = {name: leaf.clone() for name, leaf in buffers.items()}

            def loss(weights, indices, own=own, rows=rows):
                z = plain.features(layers, weights, own, samples.inputs[indices], training=True)
                scale = weights.get("scale", fixed)
                logits = torch.stack([scale * (plain.unit(z) * row).sum(1) for row in rows], 1)
                return -logits.log_softmax(1)[torch.arange(len(indices)), samples.labels[indices]].mean()

            model = plain.local_sgd(loss, params, [b.indices for b in task.phases[0]], lr, 0.9, 1e-3, clamp)
            models.append(model)
            statistics.append(own)
            sizes.append(len(task.indices))
            labels = samples.labels[task.indices]
            z = plain.unit(plain.features(layers, model, own, samples.inputs[task.indices], training=False))
            for label in labels.unique().tolist():
                mine = z[labels == label]
                seen.setdefault(label, []).append(len(mine) * plain.unit(mine.mean(0)))
        params, buffers = plain.weighted_mean(models, sizes), plain.weighted_mean(statistics, sizes)
        rows = rows.clone()
        for label, parts in seen.items():
            rows[label] = plain.unit(rho * rows[label] + (1 - rho) * plain.unit(sum(parts)))
    return params | {"head.weight": rows}, buffers


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("cohort", [4, 2])
@pytest.mark.parametrize("rho", [0.9, 0.3])
def test_three_rounds_agree_with_a_plain_version(norm, cohort, rho):
    ran = train("fednh", rounds=3, clients_per_round=cohort, rho=rho, **{"model.norm": norm})
    params, buffers = reference(ran.setup, norm, 3, rho)
    assert_close(ran.state.params, {name: params[name] for name in ran.state.params}, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)
    assert ran.history[-1]["scale"] == pytest.approx(params["scale"].item(), abs=1e-9)


def test_a_fixed_scale_agrees_with_a_plain_version():
    ran = train("fednh", fix_scale=True, lr=0.005)
    assert ran.setup.start.fixed["scale"] == 30
    assert "scale" not in ran.state.params
    params, _ = reference(ran.setup, "none", 2, lr=0.005)
    assert_close(ran.state.params, {name: params[name] for name in ran.state.params}, 1e-9)
    assert [row["scale"] for row in ran.history] == [30.0, 30.0]


@pytest.mark.parametrize("learnable", [True, False])
def test_the_scale_starts_where_it_is_told(learnable):
    ran = train("fednh", lr=0.01, **{"scale.init": 7.0, "scale.learnable": learnable})
    assert (ran.setup.start.params if learnable else ran.setup.start.fixed)["scale"] == 7
    params, _ = reference(ran.setup, "none", 2, lr=0.01, fixed=7.0)
    assert_close(ran.state.params, {name: params[name] for name in ran.state.params}, 1e-9)
    expected = params["scale"].item() if learnable else 7.0
    assert ran.history[-1]["scale"] == pytest.approx(expected, abs=1e-9)
    assert (ran.history[-1]["scale"] == 7) is not learnable


def test_fixing_the_scale_overrides_the_table():
    assert fednh(scale=Scale(init=7.0, min="none"), fix_scale=True).head == fednh(fix_scale=True).head


def test_the_comparison_notices_a_changed_knob():
    ran = train("fednh")
    params, _ = reference(ran.setup, "none", 2, 0.91)
    with pytest.raises(AssertionError, match="head"):
        assert_close({"head.weight": ran.state.params["head.weight"]}, {"head.weight": params["head.weight"]}, 1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 1.0])
def test_prototypes_always_have_length_one(dtype, rho):
    for rounds in (1, 3):
        ran = train("fednh", rounds=rounds, clients_per_round=2, rho=rho, dtype=dtype)
        lengths = ran.state.params["head.weight"].double().norm(dim=1)
        torch.testing.assert_close(lengths, torch.ones(NUM_CLASSES).double(), rtol=0, atol=2e-7)


def test_more_classes_than_features_have_prototypes_of_length_one_too():
    ran = train("fednh", **{"model.dim": 3})
    lengths = ran.state.params["head.weight"].norm(dim=1)
    torch.testing.assert_close(lengths, torch.ones(NUM_CLASSES).double(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_with_rho_one_prototypes_stay_where_they_were_drawn(dtype):
    ran = train("fednh", rho=1.0, rounds=3, dtype=dtype)
    assert torch.equal(ran.state.params["head.weight"], ran.setup.start.params["head.weight"])
    moved = train("fednh", rho=0.99, rounds=1, dtype=dtype)
    assert not torch.equal(moved.state.params["head.weight"], moved.setup.start.params["head.weight"])


def test_a_class_nobody_in_the_cohort_holds_keeps_its_prototype():
    ran = train("fednh", rounds=1, clients_per_round=1)
    task = ran.setup.planner.task(0, int(ran.history[0]["clients"][0]))
    absent = task.counts == 0
    assert absent.any()
    unmoved = (ran.state.params["head.weight"] == ran.setup.start.params["head.weight"]).all(1)
    assert torch.equal(unmoved, absent)


def test_prototypes_travel_down_and_not_up():
    setup = build("fednh", **BATCH_NORM)
    sums = train_client(setup.problem, setup.start, tasks(setup)[0], None, 0.05).sums
    assert "head.weight" not in sums["delta"]
    assert "scale" in sums["delta"]
    nh, avg = train("fednh").history[0], train("fedavg").history[0]
    held = int((setup.clients.train.table() > 0).sum())
    head = NUM_CLASSES * DIM
    # FedAvg's head has a bias, FedNH's a scale.
    assert nh["bytes_down"] - avg["bytes_down"] == 4 * (1 - NUM_CLASSES) * 8
    assert nh["bytes_up"] - avg["bytes_up"] == 4 * (1 - NUM_CLASSES - head) * 8 + held * (DIM + 1) * 8


def test_local_training_does_not_move_prototypes():
    setup = build("fednh", **BATCH_NORM)
    result = train_client(setup.problem, setup.start, tasks(setup)[0], None, 0.05)
    moved = setup.method.server(setup.start, Sums({**result.sums.trees, "directions": NOTHING}, result.sums.reduce))
    assert_same_bits({"head.weight": moved.params["head.weight"]}, {"head.weight": setup.start.params["head.weight"]})
    assert not torch.equal(moved.params["scale"], setup.start.params["scale"])


NOTHING = {"sum": torch.zeros(NUM_CLASSES, DIM).double(), "count": torch.zeros(NUM_CLASSES).double()}


def moved(rows, sums, counts, rho):
    state = ServerState({"head.weight": torch.tensor(rows, dtype=torch.float64)}, {}, {})
    sent = {"sum": torch.tensor(sums, dtype=torch.float64), "count": torch.tensor(counts, dtype=torch.float64)}
    return move_prototypes(state, Sums({"directions": sent}), rho=rho).params["head.weight"]


def test_a_step_by_hand():
    """Half of (1, 0) and half of (0, 1), whatever the length of the sum; the second class is not held."""
    new = moved([[1.0, 0.0], [0.6, 0.8]], [[0.0, 7.0], [0.0, 0.0]], [9.0, 0.0], rho=0.5)
    torch.testing.assert_close(new, torch.tensor([[0.5**0.5, 0.5**0.5], [0.6, 0.8]], dtype=torch.float64))


def test_parts_that_cancel_leave_the_prototype_where_it_is():
    assert moved([[1.0, 0.0]], [[-3.0, 0.0]], [3.0], rho=0.5).tolist() == [[1.0, 0.0]]


def test_features_without_a_direction_leave_the_prototype_where_it_is():
    torch.testing.assert_close(moved([[0.6, 0.8]], [[0.0, 0.0]], [3.0], rho=0.9)[0].tolist(), [0.6, 0.8])
    assert moved([[0.6, 0.8]], [[0.0, 0.0]], [3.0], rho=0.0).tolist() == [[0.6, 0.8]]


@pytest.mark.parametrize("rho", [-0.1, 1.1, float("nan")])
def test_nonsense_is_refused(rho):
    with pytest.raises(Misconfigured, match=f"rho={rho}"):
        fednh(rho=rho)
