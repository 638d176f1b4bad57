"""MOON."""

import math
from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.network import Network
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.core.outcome import train_client
from fedblade.methods.moon import moon
from fedblade.results import RunDirectory
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
MLP = {"mlp": True, "mlp_width": 24}


def layers_of(norm, mlp):
    """The plain layers; with the projection MLP the body is one level deeper."""
    if not mlp:
        return LAYERS[norm]
    inner = [(kind, name.replace("body.", "body.body.")) for kind, name in LAYERS[norm]]
    return [*inner, ("linear", "body.neck.0"), ("relu", ""), ("linear", "body.neck.2")]


def contrastive_loss(layers, own, x, y, received, before, mu, tau, teacher_norm):
    """CE + μ·(-log of the share of e^{cos/τ}); models are pairs of parameters and statistics."""

    def loss(w, indices):
        r = plain.features(layers, w, own, x[indices], training=True)
        data = torch.nn.functional.cross_entropy(r @ w["head.weight"].T + w["head.bias"], y[indices])
        parts = []
        for params, buffers in (received, before):
            other = plain.features(layers, params, dict(buffers), x[indices], teacher_norm == "batch")
            parts.append(((plain.unit(r) * plain.unit(other)).sum(1) / tau).exp())
        return data - mu * torch.log(parts[0] / (parts[0] + parts[1])).mean()

    return loss


def reference(setup, layers, rounds, mu, tau, teacher_norm):
    x, y = setup.problem.samples.inputs, setup.problem.samples.labels
    params, buffers, previous = setup.start.params, setup.start.buffers, {}
    for round_ in range(rounds):
        models, statistics, sizes = [], [], []
        for client in setup.cohorts[round_].tolist():
            task, own = setup.planner.task(round_, client), {n: v.clone() for n, v in buffers.items()}
            received, before = (params, buffers), previous.get(client, (setup.start.params, setup.start.buffers))
            loss = contrastive_loss(layers, own, x, y, received, before, mu, tau, teacher_norm)
            models.append(plain.local_sgd(loss, params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3))
            statistics.append(own)
            sizes.append(len(task.indices))
            previous[client] = models[-1], own
        params, buffers = plain.weighted_mean(models, sizes), plain.weighted_mean(statistics, sizes)
    return params, buffers, previous


def kept(ran, client):
    return (ran.driver._store.get(client, ran.state.round) or {}).get("previous")


@pytest.mark.parametrize(
    ("norm", "teacher_norm", "mlp", "cohort"),
    [
        ("none", "eval", False, 4),
        ("batch", "eval", False, 2),
        ("batch", "batch", False, 4),
        ("none", "eval", True, 2),
        ("batch", "batch", True, 4),
    ],
)
def test_three_rounds_agree_with_a_plain_version(norm, teacher_norm, mlp, cohort):
    knobs = {"mu": 2.0, "tau": 0.4, "teacher_norm": teacher_norm, **(MLP if mlp else {})}
    ran = train("moon", rounds=3, clients_per_round=cohort, **knobs, **{"model.norm": norm})
    params, buffers, previous = reference(ran.setup, layers_of(norm, mlp), 3, 2.0, 0.4, teacher_norm)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)
    for client in range(4):
        mine = kept(ran, client)
        assert (mine is None) == (client not in previous)
        if mine is not None:
            model, own = previous[client]
            assert_close(mine, model | own, 1e-9)


def test_the_comparison_notices_a_changed_knob():
    ran = train("moon", mu=2.0, tau=0.4)
    params, *_ = reference(ran.setup, plain.MLP, 2, 2.0, 0.4001, "eval")
    with pytest.raises(AssertionError, match="body"):
        assert_close(ran.state.params, params, 1e-9)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_mu_zero_is_fedavg(norm):
    """A knob at its neutral value gives the simpler method, bit for bit."""
    overrides = {"model.norm": norm}
    assert_same_run(train("moon", mu=0.0, **overrides), train("fedavg", **overrides))


def test_mu_zero_with_its_mlp_is_fedavg_with_that_neck():
    neck = {"model.neck": 256, "model.neck_hidden": 0.5}
    assert_same_run(train("moon", mu=0.0, mlp=True), train("fedavg", **neck))


@pytest.mark.parametrize(("knobs", "shapes"), [({}, (8, 256)), ({"mlp_hidden": 1.0, "mlp_width": 10}, (16, 10))])
def test_the_widths_of_the_mlp(knobs, shapes):
    params = build("moon", mlp=True, **knobs).start.params
    hidden, width = shapes
    assert params["body.neck.0.weight"].shape == (hidden, 16)
    assert params["body.neck.2.weight"].shape == (width, hidden)
    assert params["head.weight"].shape == (5, width)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_the_first_round_is_fedavgs_and_the_second_is_not(norm):
    """Global and previous model are both w^0: the term is log 2 and has no gradient."""
    overrides = {"model.norm": norm, "teacher_norm": "eval"}
    one, two = (train("moon", rounds=rounds, **overrides) for rounds in (1, 2))
    plain_runs = [train("fedavg", rounds=rounds, **{"model.norm": norm}) for rounds in (1, 2)]
    assert_same_bits(one.state.params, plain_runs[0].state.params)
    assert one.history[0]["loss_moon"] == pytest.approx(math.log(2), abs=1e-12)
    assert_different(two.state.params, plain_runs[1].state.params)


@pytest.mark.parametrize("method", ["moon", "fedavg+moon"])
def test_a_newcomer_of_a_later_round_leaves_the_initial_model(method):
    """Its round is that of a client whose previous model is w^0, and not that of one whose previous model is w^t."""
    setup = build(method, **BATCH_NORM)
    params = {n: v * 1.3 for n, v in setup.start.params.items()}
    later, task = setup.start.replace(round=1, params=params), setup.planner.task(1, 2)
    first, current = ({"previous": tree | setup.start.buffers} for tree in (setup.start.params, params))
    newcomer, w0, wt = (train_client(setup.problem, later, task, own, 0.05).sums for own in (None, first, current))
    assert_same_bits(newcomer["delta"], w0["delta"])
    assert_different(newcomer["delta"], wt["delta"])


def one_step(setup, previous):
    task = tasks(setup)[2]
    received = receive(setup.problem, setup.start, replace(task, phases=(task.phases[0][:1],)), None, 0.05)
    return local_train(setup.problem, replace(received, client={"previous": previous}))


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("teacher_norm", ["eval", "batch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_previous_model_equal_to_the_global_one_has_no_gradient(norm, teacher_norm, dtype):
    overrides = {"model.norm": norm, "dtype": dtype}
    setup = build("moon", mu=10.0, teacher_norm=teacher_norm, **overrides)
    same = setup.start.params | setup.start.buffers
    row, trace = one_step(setup, same)
    assert_same_bits(row.params, one_step(build("fedavg", **overrides), same)[0].params)
    assert trace[0]["loss_moon"].item() == pytest.approx(torch.log(torch.tensor(2.0)).item(), abs=1e-6)
    other = same | {"body.layers.0.weight": same["body.layers.0.weight"] * 1.5}
    assert_different(one_step(setup, other)[0].params, row.params)


def test_a_client_keeps_its_own_last_model():
    setup = build("moon", **BATCH_NORM)
    for task in tasks(setup):
        result = train_client(setup.problem, setup.start, task, None, 0.05)
        row, _ = local_train(setup.problem, receive(setup.problem, setup.start, task, None, 0.05))
        assert_same_bits(result.state["previous"], row.params | row.buffers)


def test_previous_models_belong_to_one_client_and_wait_for_it():
    runs = {rounds: train("moon", rounds=rounds, clients_per_round=2) for rounds in (1, 2)}
    first, second = runs[2].history[0]["clients"], runs[2].history[1]["clients"]
    assert set(first) - set(second)
    for client in range(4):
        early, late = kept(runs[1], client), kept(runs[2], client)
        if client in second:
            assert late is not None
            assert early is None or not torch.equal(late["head.weight"], early["head.weight"])
        elif client in first:
            assert_same_bits(late, early)
        else:
            assert late is None
    assert_different(*(kept(runs[1], client) for client in first))


def test_memory_and_disk_agree(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.open(resume=False)
    overrides = {"rounds": 4, "clients_per_round": 2, "dtype": "float32", **BATCH_NORM}
    assert_same_run(train("moon", directory=directory, **overrides), train("moon", **overrides))


def test_each_step_asks_both_teachers_once(monkeypatch):
    calls = []
    forward = Network._forward

    def counted(*args, **kwargs):
        calls.append(torch.is_grad_enabled())
        return forward(*args, **kwargs)

    setup = build("moon")
    monkeypatch.setattr(Network, "_forward", counted)
    local_train(setup.problem, receive(setup.problem, setup.start, tasks(setup)[2], None, 0.05))
    steps = tasks(setup)[2].num_steps
    assert (calls.count(True), calls.count(False)) == (steps, 2 * steps)


def test_only_the_model_travels():
    cost = [(row["bytes_up"], row["bytes_down"]) for row in train("moon", **BATCH_NORM).history]
    assert cost == [(row["bytes_up"], row["bytes_down"]) for row in train("fedavg", **BATCH_NORM).history]


def test_decorrelation_acts_on_the_output_of_the_mlp():
    """2.19: its features are the 256 numbers that the classifier reads; the contrast is silent in round 0."""
    setup = build("moon+feddecorr", mlp=True)
    samples, task = setup.problem.samples, tasks(setup)[2]
    task = replace(task, phases=(task.phases[0][:2],))
    layers = layers_of("none", True)

    def loss(w, indices):
        r = plain.features(layers, w, {}, samples.inputs[indices], training=True)
        assert r.shape[1] == 256
        Z = (r - r.mean(0)) / (r.var(0, correction=1) + 1e-8).sqrt()
        gram = (Z.T @ Z) ** 2
        off_diagonal = (gram.sum() - gram.diagonal().sum()) / (256 * 255) / len(r)
        logits = r @ w["head.weight"].T + w["head.bias"]
        return torch.nn.functional.cross_entropy(logits, samples.labels[indices]) + 0.1 * off_diagonal

    expected = plain.local_sgd(loss, setup.start.params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3)
    row, _ = local_train(setup.problem, receive(setup.problem, setup.start, task, None, 0.05))
    assert_close(row.params, expected, 1e-9)


@pytest.mark.parametrize(
    ("knobs", "said"),
    [({"tau": 0.0}, "tau=0"), ({"mlp_hidden": 0.0}, "mlp_hidden=0"), ({"mlp_width": -1}, "mlp_width=-1")],
)
def test_nonsense_is_refused(knobs, said):
    with pytest.raises(Misconfigured, match=said):
        moon(**knobs)
