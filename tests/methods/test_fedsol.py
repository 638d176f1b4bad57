"""FedSOL."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.core.phase import MoveView
from fedblade.methods.fedsol import fedsol
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


def moved(leaf, start):
    """|w − w^t| divided by its length along the first axis, column by column."""
    columns = (leaf - start).abs().reshape(leaf.shape[0] if leaf.dim() else 1, -1).clone()
    for j in range(columns.shape[1]):
        length = (columns[:, j] ** 2).sum().sqrt()
        if length > 0:
            columns[:, j] /= length
    return columns.reshape(leaf.shape)


def perturbed(params, start, gradients, rho, perturbation):
    norm = sum((g**2).sum() for g in gradients.values()).sqrt()
    if norm < 1e-6:
        return {n: w.detach().clone() for n, w in params.items()}
    reach = {n: moved(w.detach(), start[n]) if perturbation == "adaptive" else 1.0 for n, w in params.items()}
    return {n: w.detach() + rho * reach[n] * gradients[n] / (norm + 1e-12) for n, w in params.items()}


def gradients_of(loss, params):
    return dict(zip(params, torch.autograd.grad(loss, list(params.values())), strict=True))


def local(layers, start, statistics, x, y, batches, knobs):
    """Two gradients a step: distillation at w, which updates statistics, and cross-entropy at w̃."""
    rho, tau, perturbation, teacher_norm = knobs
    params, own = {n: v.clone().requires_grad_() for n, v in start.items()}, dict(statistics)
    velocity = {n: torch.zeros_like(v) for n, v in params.items()}
    for indices in batches:
        teacher = logits_of(layers, start, dict(statistics), x[indices], teacher_norm == "batch")
        student = logits_of(layers, params, own, x[indices], training=True)
        p, q = (torch.softmax(each / tau, 1) for each in (teacher, student))
        proximal = gradients_of((p * (p / q).log()).sum(1).mean(), params)
        there = perturbed(params, start, proximal, rho, perturbation)
        there = {n: w.requires_grad_() for n, w in there.items()}
        task = torch.nn.functional.cross_entropy(logits_of(layers, there, dict(own), x[indices], True), y[indices])
        gradients = gradients_of(task, there)
        with torch.no_grad():
            for n, w in params.items():
                velocity[n] = 0.9 * velocity[n] + gradients[n] + 1e-3 * w
                w -= 0.05 * velocity[n]
    return {n: v.detach() for n, v in params.items()}, own


def reference(setup, norm, rounds, *knobs):
    x, y = setup.problem.samples.inputs, setup.problem.samples.labels
    params, buffers = setup.start.params, setup.start.buffers
    for round_ in range(rounds):
        models, statistics, sizes = [], [], []
        for client in setup.cohorts[round_].tolist():
            task = setup.planner.task(round_, client)
            batches = [b.indices for b in task.phases[0]]
            model, own = local(LAYERS[norm], params, buffers, x, y, batches, knobs)
            models.append(model)
            statistics.append(own)
            sizes.append(len(task.indices))
        params, buffers = plain.weighted_mean(models, sizes), plain.weighted_mean(statistics, sizes)
    return params, buffers


@pytest.mark.parametrize(("norm", "teacher_norm"), [("none", "eval"), ("batch", "eval"), ("batch", "batch")])
@pytest.mark.parametrize(("perturbation", "rho"), [("adaptive", 2.0), ("fixed", 0.3)])
def test_two_rounds_agree_with_a_plain_version(norm, teacher_norm, perturbation, rho):
    knobs = {"rho": rho, "tau": 2.0, "perturbation": perturbation, "teacher_norm": teacher_norm}
    ran = train("fedsol", **knobs, **{"model.norm": norm})
    params, buffers = reference(ran.setup, norm, 2, rho, 2.0, perturbation, teacher_norm)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)


@pytest.mark.parametrize(("rho", "tau"), [(2.001, 3.0), (2.0, 3.01)])
def test_the_comparison_notices_a_changed_knob(rho, tau):
    ran = train("fedsol")
    params, _ = reference(ran.setup, "none", 2, rho, tau, "adaptive", "eval")
    with pytest.raises(AssertionError, match="body"):
        assert_close(ran.state.params, params, 1e-9)


def test_the_defaults_are_those_of_feddr_plus():
    given = {"rho": 2.0, "tau": 3.0, "perturbation": "adaptive", "teacher_norm": "eval"}
    assert_same_run(train("fedsol", **BATCH_NORM), train("fedsol", **given, **BATCH_NORM))


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("perturbation", ["adaptive", "fixed"])
def test_rho_zero_is_fedavg(norm, perturbation):
    """With BatchNorm too, because the statistics are those of w."""
    sol = train("fedsol", rho=0.0, perturbation=perturbation, **{"model.norm": norm})
    avg = train("fedavg", **{"model.norm": norm})
    assert_same_bits(sol.state.params, avg.state.params)
    assert_same_bits(sol.state.buffers, avg.state.buffers)
    assert_different(sol.state.params, train("fedsol", **{"model.norm": norm}).state.params)


def steps(setup, number, lr=0.05):
    task = tasks(setup)[2]
    received = receive(setup.problem, setup.start, replace(task, phases=(task.phases[0][:number],)), None, lr)
    return local_train(setup.problem, received)[0]


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("perturbation", ["adaptive", "fixed"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_first_step_of_a_round_is_fedavgs(norm, perturbation, dtype):
    """Student and teacher agree but for rounding, which must not be blown up to length ρ."""
    overrides = {"model.norm": norm, "dtype": dtype}
    method = fedsol(rho=5.0, perturbation=perturbation, teacher_norm="batch")
    sol, avg = (build(each, **overrides) for each in (method, "fedavg"))
    assert_same_bits(*(row.params | row.buffers for row in (steps(sol, 1), steps(avg, 1))))
    assert_different(*(row.params for row in (steps(sol, 2), steps(avg, 2))))


def test_with_running_statistics_the_first_step_is_fedavgs_where_nothing_has_moved():
    """The teacher in evaluation differs from the student, but |w − w^t| is 0."""
    adaptive, fixed, avg = (build(each, **BATCH_NORM) for each in (fedsol(), fedsol(perturbation="fixed"), "fedavg"))
    assert_same_bits(steps(adaptive, 1).params, steps(avg, 1).params)
    assert_different(steps(fixed, 1).params, steps(avg, 1).params)


def test_statistics_are_updated_once_a_step_and_at_w():
    sol, avg = build(fedsol(rho=50.0, perturbation="fixed"), **BATCH_NORM), build("fedavg", **BATCH_NORM)
    a, b = steps(sol, 1), steps(avg, 1)
    assert_same_bits(a.buffers, b.buffers)
    assert_different(a.params, b.params)
    assert steps(sol, 3).buffers["body.layers.1.num_batches_tracked"] == 3


def test_the_received_statistics_stay():
    setup = build("fedsol", teacher_norm="batch", **BATCH_NORM)
    received = receive(setup.problem, setup.start, tasks(setup)[2], None, 0.05)
    local_train(setup.problem, received)
    assert_same_bits(received.buffers, setup.start.buffers)


def move(method, params, anchor, gradient):
    return method.phases[0].lookahead.move(MoveView(params, anchor, gradient, 0.1))


def random_trees(clients=(), dtype=torch.float64):
    generator = torch.Generator().manual_seed(4)
    shapes = {"conv": (4, 3, 2, 2), "linear": (5, 4), "bias": (5,), "scale": ()}
    trees = [
        {n: torch.randn((*clients, *shape), generator=generator, dtype=dtype) for n, shape in shapes.items()}
        for _ in range(3)
    ]
    trees[1]["bias"] = trees[0]["bias"].clone()
    trees[1]["linear"] = torch.cat((trees[0]["linear"][..., :2], trees[1]["linear"][..., 2:]), -1)
    return trees


@pytest.mark.parametrize("perturbation", ["adaptive", "fixed"])
@pytest.mark.parametrize("size", [1.0, 1e-4, 1e-9, 0.0])
def test_the_perturbation_is_its_formula(perturbation, size):
    """Tensors of any rank; columns that have not moved, and gradients that are rounding, move nothing."""
    params, anchor, gradient = random_trees()
    gradient = {n: size * g for n, g in gradient.items()}
    found = move(fedsol(rho=1.5, perturbation=perturbation), params, anchor, gradient)
    expected = perturbed(params, anchor, gradient, 1.5, perturbation)
    assert_close(found, expected, 1e-13)
    if perturbation == "adaptive":
        assert torch.equal(found["bias"], params["bias"])
        assert torch.equal(found["linear"][:, :2], params["linear"][:, :2])
    assert any(not torch.equal(found[n], params[n]) for n in params) == (size > 1e-6)


@pytest.mark.parametrize("perturbation", ["adaptive", "fixed"])
def test_a_client_axis_may_be_added(perturbation):
    """One of the clients agrees with its teacher, the others do not."""
    params, anchor, gradient = random_trees((3,))
    gradient = {n: torch.stack((g[0], g[1] * 1e-9, g[2])) for n, g in gradient.items()}
    method = fedsol(rho=1.5, perturbation=perturbation)
    stacked = torch.func.vmap(lambda *trees: move(method, *trees))(params, anchor, gradient)
    for k in range(3):
        alone = move(method, *({n: v[k] for n, v in tree.items()} for tree in (params, anchor, gradient)))
        assert_close({n: v[k] for n, v in stacked.items()}, alone, 1e-13)


def test_single_precision_stays_single():
    params, anchor, gradient = random_trees(dtype=torch.float32)
    assert all(leaf.dtype == torch.float32 for leaf in move(fedsol(), params, anchor, gradient).values())


def test_only_the_model_travels_and_both_losses_are_shown():
    rows, base = train("fedsol", rounds=1).history, train("fedavg", rounds=1).history
    assert (rows[0]["bytes_up"], rows[0]["bytes_down"]) == (base[0]["bytes_up"], base[0]["bytes_down"])
    assert rows[0]["loss_inner_kd"] > 0
    assert rows[0]["loss_supervised"] > 0


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"rho": -1.0}, "rho=-1"),
        ({"rho": float("nan")}, "rho=nan"),
        ({"rho": float("inf")}, "rho=inf"),
        ({"tau": 0.0}, "tau=0"),
        ({"perturbation": "adaptiv"}, "'adaptiv'.*adaptive"),
    ],
)
def test_nonsense_is_refused(knobs, said):
    with pytest.raises(Misconfigured, match=said):
        fedsol(**knobs)
