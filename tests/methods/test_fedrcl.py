"""FedRCL."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

import support.plain_torch as plain
from fedblade.cards import make_card
from fedblade.core.errors import Misconfigured
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.methods.fedrcl import fedrcl
from fedblade.runs import prepare
from support.small_federation import (
    CNN,
    assert_close,
    assert_different,
    assert_same_run,
    build,
    configure,
    images,
    tasks,
    train,
    vectors,
)

UNCLIPPED = {"method.clip": "none"}


def supervised_contrast(rows, labels, tau, beta, threshold):
    """The hard-mined loss of one stage, one sample after the other."""
    units, labels, parts = plain.unit(rows), labels.tolist(), []
    for i, label in enumerate(labels):
        cosines = [(units[i] * other).sum() for other in units]
        same = [cosines[j] for j in range(len(labels)) if labels[j] == label and j != i]
        others = sorted((cosines[j] for j in range(len(labels)) if labels[j] != label), reverse=True)[:2]
        positive = min(same) if same else torch.ones((), dtype=rows.dtype)
        total = torch.zeros((), dtype=rows.dtype)
        if others:
            powers = [((cosine - positive) / tau).exp() for cosine in others]
            total = total + (1 + sum(powers)).log()
        if same and positive >= threshold:
            total = total + beta * (1 + ((positive - 1) / tau).exp()).log()
        parts.append(total)
    return torch.stack(parts).mean()


def cnn_stages(params, buffers, x):
    """Both stages and the features of the small CNN in training, statistics ignored."""
    maps, stages = x, []
    for stage in ("body.stage1", "body.stage2"):
        maps = F.conv2d(maps, params[f"{stage}.0.weight"], padding=1)
        mean, var = maps.mean((0, 2, 3), keepdim=True), maps.var((0, 2, 3), correction=0, keepdim=True)
        weight, bias = (params[f"{stage}.1.{name}"][:, None, None] for name in ("weight", "bias"))
        maps = F.max_pool2d(((maps - mean) / (var + 1e-5).sqrt() * weight + bias).relu(), 2)
        stages.append(maps.mean((2, 3)))
    return stages, (maps.flatten(1) @ params["body.linear.weight"].T + params["body.linear.bias"]).relu()


def mlp_stages(params, buffers, x):
    z = plain.features(plain.MLP, params, buffers, x, training=True)
    return [z], z


def reference(setup, task, look, beta, threshold, tau):
    x, y = setup.problem.samples.inputs, setup.problem.samples.labels

    def loss(params, indices):
        stages, z = look(params, {}, x[indices])
        data = F.cross_entropy(z @ params["head.weight"].T + params["head.bias"], y[indices])
        values = [supervised_contrast(each, y[indices], tau, beta, threshold) for each in stages]
        return data + sum(values) / len(values)

    return plain.local_sgd(loss, setup.start.params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3)


def local(setup, task):
    return local_train(setup.problem, receive(setup.problem, setup.start, task, None, 0.05))[0].params


def few_steps(task):
    return replace(task, phases=(task.phases[0][:4],))


@pytest.mark.parametrize(
    ("knobs", "values"),
    [
        ({}, (1.0, 0.7, 0.05)),
        ({"beta_rcl": 0.7, "tau": 0.1}, (0.7, 0.7, 0.1)),
        ({"beta_rcl": 0.0, "tau": 0.3}, (0.0, 0.7, 0.3)),
        ({"beta_rcl": 3.0, "lambda_rcl": 0.2, "tau": 0.5}, (3.0, 0.2, 0.5)),
    ],
)
def test_training_follows_the_mined_loss_of_one_stage(knobs, values):
    setup = build("fedrcl", **knobs, **UNCLIPPED)
    for task in map(few_steps, tasks(setup)):
        assert_close(local(setup, task), reference(setup, task, mlp_stages, *values), 1e-9)
    other = reference(setup, task, mlp_stages, values[0], values[1], values[2] + 0.01)
    with pytest.raises(AssertionError, match="body"):
        assert_close(local(setup, task), other, 1e-7)


def test_the_loss_is_the_mean_over_stages():
    setup = build("fedrcl", data=images(), tau=0.2, **CNN)
    task = few_steps(tasks(setup)[2])
    assert_close(local(setup, task), reference(setup, task, cnn_stages, 1.0, 0.7, 0.2), 1e-9)
    last_alone = reference(setup, task, lambda *given: (cnn_stages(*given)[0][1:], cnn_stages(*given)[1]), 1, 0.7, 0.2)
    with pytest.raises(AssertionError, match="body"):
        assert_close(local(setup, task), last_alone, 1e-6)


def test_above_one_the_threshold_switches_the_penalty_off():
    off, none, on = (
        train("fedrcl", **knobs) for knobs in ({"lambda_rcl": 1.5}, {"beta_rcl": 0.0}, {"lambda_rcl": 0.0})
    )
    assert_same_run(off, none)
    assert_different(on.state.params, none.state.params)


def test_mining_and_taps_are_choices():
    everything, hard = (train("fedrcl", mining=mining).state.params for mining in ("all", "hard"))
    assert_different(everything, hard)
    (term,) = (each for each in fedrcl(feature_relu=True).losses if each.name == "rcl")
    assert (term.taps, replace(term, feature_relu=False).taps) == ("relu", "plain")


def test_batches_of_one_sample_are_fedavgs():
    single = {"local.batch_size": 1, "local.epochs": 1}
    a, b = train("fedrcl", **single, **UNCLIPPED), train("fedavg", **single)
    assert_close(a.state.params, b.state.params, 0.0)
    assert all(row["loss_rcl"] == 0 for row in a.history)


def test_clients_of_one_class_have_no_contrast():
    """No negatives: SCL is 0, and without the penalty nothing is left."""
    shards = {"partition": "shards", "partition.shards_per_client": 1, "num_clients": 5, "clients_per_round": 5}
    ran = train("fedrcl", beta_rcl=0.0, **shards)
    assert all(row["loss_rcl"] == 0 for row in ran.history)
    assert train("fedrcl", **shards).history[0]["loss_rcl"] > 0


def test_only_the_model_travels():
    cost = [(row["bytes_up"], row["bytes_down"]) for row in train("fedrcl").history]
    assert cost == [(row["bytes_up"], row["bytes_down"]) for row in train("fedavg").history]


def test_a_model_that_names_no_stages_is_refused():
    body = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU())
    setup = prepare(configure("fedrcl", model="object"), vectors(), body)
    with pytest.raises(Misconfigured, match="stages"):
        local(setup, tasks(setup)[0])


def first_step(method, **knobs):
    """A client's first step without momentum and decay, divided by the rate; a small τ makes it long."""
    setup = build(method, tau=1e-3, momentum=0.0, weight_decay=0.0, **knobs)
    task = tasks(setup)[0]
    after = local(setup, replace(task, phases=(task.phases[0][:1],)))
    return torch.cat([((setup.start.params[name] - after[name]) / 0.05).flatten() for name in sorted(after)])


@pytest.mark.parametrize("method", ["fedrcl", "fedrcl+feddecorr", "fedrcl-ft"])
@pytest.mark.parametrize(
    ("knobs", "norm"),
    [
        ({}, 10.0),
        ({"method.clip": 7.0}, 7.0),
        ({"optimizer.clip": 3.0}, 3.0),
        ({"optimizer.clip": 15.0}, 15.0),
        ({"optimizer.clip": 3.0, **UNCLIPPED}, 3.0),
    ],
)
def test_a_huge_gradient_is_cut_to_the_norm_and_keeps_its_direction(method, knobs, norm):
    """2.15: 10 by default; the run's own number goes before the method's."""
    whole, cut = first_step(method, **UNCLIPPED), first_step(method, **knobs)
    assert whole.norm() > 100
    torch.testing.assert_close(cut, whole * (norm / whole.norm()), rtol=1e-6, atol=1e-9)


def test_the_card_tells_the_clip():
    (phase,) = make_card("fedrcl").phases
    assert phase.remarks == ("gradients clipped at norm 10",)


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"tau": 0.0}, "tau=0"),
        ({"mining": "soft"}, "unknown mining"),
        ({"clip": 0.0}, r"clip=0\.0: expected a gradient norm above 0"),
        ({"clip": -2.0}, r"clip=-2\.0: expected"),
    ],
)
def test_nonsense_is_refused(knobs, said):
    with pytest.raises(Misconfigured, match=said):
        fedrcl(**knobs)
