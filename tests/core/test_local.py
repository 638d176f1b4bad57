"""One client's local loop against `torch.optim.SGD` on a module of its own."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import pytest
import torch
from torch import nn

from fedblade.core.end import effective_steps
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as train
from fedblade.core.outcome import train_client
from fedblade.core.phase import Phase
from fedblade.core.problem import MOMENTUM
from fedblade.core.terms import GradientTerm
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg
from fedblade.methods.fedetf import fedetf
from fedblade.runs import prepare
from support.own_modules import Noisy
from support.small_federation import (
    BATCH_NORM,
    CNN,
    assert_close,
    assert_same_bits,
    build,
    configure,
    images,
    tasks,
    vectors,
)


def plain_module(setup):
    """The same network as an ordinary module with the run's initial weights."""
    widths = [6, *setup.config.model.knobs["hidden"], setup.problem.network.dim]
    layers = []
    for width_in, width_out in pairwise(widths):
        layers.append(nn.Linear(width_in, width_out))
        if setup.config.model.knobs["norm"] == "batch":
            layers.append(nn.BatchNorm1d(width_out))
        layers.append(nn.ReLU())
    module = nn.ModuleDict({"layers": nn.Sequential(*layers), "head": nn.Linear(widths[-1], 5)}).to(
        setup.problem.samples.dtype
    )
    module.load_state_dict({n.removeprefix("body."): v for n, v in (setup.start.params | setup.start.buffers).items()})
    return module


def named(module):
    names = {
        n: n if n.startswith("head.") else f"body.{n}" for n, _ in (*module.named_parameters(), *module.named_buffers())
    }
    return {names[n]: v.detach() for n, v in (*module.named_parameters(), *module.named_buffers())}


def sgd_epochs(module, optimizer, setup, task, clip=None):
    """The plain loop every textbook has."""
    for batch in (b for phase in task.phases for b in phase):
        x = setup.problem.samples.inputs[batch.indices].to(setup.problem.samples.dtype)
        y = setup.problem.samples.labels[batch.indices]
        optimizer.zero_grad()
        logits = module["head"](module["layers"](x))
        nn.functional.cross_entropy(logits, y, reduction="none").mean().backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()


def local(setup, task, own=None, lr=0.05):
    return train(setup.problem, receive(setup.problem, setup.start, task, own, lr))


SETTINGS = [(0.0, 0.0), (0.9, 0.0), (0.0, 0.01), (0.9, 0.01)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("momentum", "decay"), SETTINGS)
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_local_training_is_torch_sgd_bit_for_bit(dtype, momentum, decay, norm):
    setup = build(dtype=dtype, **{"momentum": momentum, "weight_decay": decay, "model.norm": norm})
    task = tasks(setup)[2]
    module = plain_module(setup)
    optimizer = torch.optim.SGD(module.parameters(), 0.05, momentum, weight_decay=decay)
    sgd_epochs(module, optimizer, setup, task)
    row, trace = local(setup, task)
    assert_same_bits(row.params | row.buffers, named(module))
    assert len(trace) == task.num_steps == 12


@pytest.mark.parametrize("clip", [0.05, 0.5, 100.0])
def test_clipping_is_torchs(clip):
    setup = build(clip=clip)
    task = tasks(setup)[1]
    module = plain_module(setup)
    sgd_epochs(module, torch.optim.SGD(module.parameters(), 0.05, 0.9, weight_decay=1e-3), setup, task, clip)
    assert_close(local(setup, task)[0].params, named(module), 1e-12)


def test_a_small_clip_changes_something():
    free, clipped = build(), build(clip=0.05)
    assert not torch.equal(
        local(free, tasks(free)[1])[0].params["head.weight"], local(clipped, tasks(free)[1])[0].params["head.weight"]
    )


def test_persistent_momentum_is_one_optimiser_for_the_whole_run():
    setup = build(persist=True)
    module = plain_module(setup)
    optimizer = torch.optim.SGD(module.parameters(), 0.05, 0.9, weight_decay=1e-3)
    own = None
    for round_ in range(2):
        module.load_state_dict(plain_module(setup).state_dict())
        task = setup.planner.task(round_, 1)
        sgd_epochs(module, optimizer, setup, task)
        own = train_client(setup.problem, setup.start, task, own, 0.05).state
    again = local(setup, setup.planner.task(2, 1), own)[0]
    module.load_state_dict(plain_module(setup).state_dict())
    sgd_epochs(module, optimizer, setup, setup.planner.task(2, 1))
    assert_same_bits(again.params, named(module))


def test_momentum_is_fresh_by_default():
    setup = build()
    result = train_client(setup.problem, setup.start, tasks(setup)[0], None, 0.05)
    assert result.state == {}
    kept = train_client(build(persist=True).problem, setup.start, tasks(setup)[0], None, 0.05)
    assert kept.state.keys() == {MOMENTUM}


def test_training_leaves_what_was_received_untouched():
    setup = build(**BATCH_NORM)
    received = receive(setup.problem, setup.start, tasks(setup)[0], None, 0.05)
    before = {n: v.clone() for n, v in (received.anchor | received.buffers).items()}
    train(setup.problem, received)
    assert_same_bits(received.anchor | received.buffers, before)
    assert_same_bits(setup.start.params | setup.start.buffers, before)


GROUPS = {"body": "body.", "projector": "projector.", "scale": "scale"}


@pytest.mark.parametrize("group", [*GROUPS, "norm"])
def test_a_phase_trains_the_groups_it_names_and_no_other(group):
    setup = build(replace(fedetf(), phases=(Phase(trains=(group,)),)), weight_decay=0.1, **BATCH_NORM)
    row, _ = local(setup, tasks(setup)[2])
    changed = {n for n, v in row.params.items() if not torch.equal(v, setup.start.params[n])}
    assert changed == setup.problem.network.names_in((group,), row.params)
    assert changed


def test_phases_follow_one_another_with_fresh_momentum():
    two = build(replace(fedavg(), phases=(Phase(trains=("head",), epochs=1), Phase(trains=("body",), epochs=2))))
    task = tasks(two)[2]
    module = plain_module(two)
    for name, batches in (("head", task.phases[0]), ("layers", task.phases[1])):
        optimizer = torch.optim.SGD(module[name].parameters(), 0.05, 0.9, weight_decay=1e-3)
        sgd_epochs(module, optimizer, two, replace(task, phases=(batches,)))
    assert_same_bits(local(two, task)[0].params, named(module))


def test_momentum_does_not_leak_between_phases_of_the_same_group():
    two = build(replace(fedavg(), phases=(Phase(epochs=1), Phase(epochs=1))))
    task = tasks(two)[2]
    module = plain_module(two)
    for batches in task.phases:
        sgd_epochs(
            module,
            torch.optim.SGD(module.parameters(), 0.05, 0.9, weight_decay=1e-3),
            two,
            replace(task, phases=(batches,)),
        )
    assert_same_bits(local(two, task)[0].params, named(module))


def test_a_phase_may_have_losses_of_its_own():
    weak = Phase(losses=(CrossEntropy(weight=0.5),))
    own = build(replace(fedavg(), phases=(weak,)))
    general = build(replace(fedavg(), losses=(CrossEntropy(weight=0.5),)))
    assert_same_bits(local(own, tasks(own)[0])[0].params, local(general, tasks(own)[0])[0].params)


@dataclass(frozen=True, kw_only=True)
class Push(GradientTerm):
    """Adds one to the gradient of the head's bias, and names a tensor that does not exist."""

    name: ClassVar[str] = "push"

    def gradient(self, view):
        return {"head.bias": torch.ones_like(view.params["head.bias"]), "unknown": torch.ones(1)}


def test_a_gradient_term_adds_its_weight_times_its_gradient():
    plain = build(momentum=0.0, weight_decay=0.0)
    pushed = build(replace(fedavg(), losses=(CrossEntropy(), Push(weight=0.3))), momentum=0.0, weight_decay=0.0)
    task = tasks(plain)[0]
    first = replace(task, phases=((task.phases[0][0],),))
    a, b = local(plain, first)[0].params, local(pushed, first)[0].params
    torch.testing.assert_close(b.pop("head.bias"), a.pop("head.bias") - 0.05 * 0.3, rtol=0, atol=1e-15)
    assert_same_bits(a, b)


def test_a_gradient_term_does_not_train_what_the_phase_leaves_out():
    method = replace(fedavg(), losses=(CrossEntropy(), Push()), phases=(Phase(trains=("body",)),))
    setup = build(method)
    row, _ = local(setup, tasks(setup)[0])
    assert torch.equal(row.params["head.bias"], setup.start.params["head.bias"])


def test_a_tensor_the_loss_does_not_reach_only_decays():
    setup = build(replace(fedetf(), losses=(CrossEntropy(weight=0.0),)), momentum=0.0, weight_decay=0.1)
    task = tasks(setup)[0]
    row, _ = local(setup, replace(task, phases=((task.phases[0][0],),)))
    for name, leaf in row.params.items():
        torch.testing.assert_close(leaf, setup.start.params[name] * (1 - 0.05 * 0.1), rtol=1e-14, atol=0)


def test_weight_decay_acts_on_scale_and_normalisation_too():
    with_decay, without = (build("fedetf", weight_decay=w, **BATCH_NORM) for w in (0.1, 0.0))
    task = tasks(without)[2]
    one_step = replace(task, phases=((task.phases[0][0],),))
    a, b = local(with_decay, one_step)[0].params, local(without, one_step)[0].params
    for name, leaf in a.items():
        torch.testing.assert_close(leaf, b[name] - 0.05 * 0.1 * without.start.params[name], rtol=1e-13, atol=1e-16)


def test_a_clients_result_does_not_depend_on_torchs_global_generator():
    """Rule 3, randomness is data: nothing but (seed, round, client) decides what a client computes."""
    setup = prepare(configure(model="object"), vectors(), Noisy())
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        results.append(local(setup, tasks(setup)[0])[0].params)
    assert_same_bits(*results)


def test_the_small_cnn_keeps_its_statistics_per_client():
    setup = build(data=images(), **CNN)
    first, second = tasks(setup)[:2]
    alone = local(setup, second)[0]
    local(setup, first)
    assert_same_bits(alone.buffers, local(setup, second)[0].buffers)
    assert alone.buffers["body.stage1.1.num_batches_tracked"] == second.num_steps


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_effective_steps_are_what_momentum_makes_of_constant_gradients(momentum, steps):
    weight, buffer = 0.0, 0.0
    for _ in range(steps):
        buffer = momentum * buffer + 1.0
        weight += buffer
    assert effective_steps(steps, momentum) == pytest.approx(weight, rel=1e-12)
