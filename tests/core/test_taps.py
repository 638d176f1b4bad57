"""Outputs of the body's stages: their shapes and order, with and without ReLU, behind a neck, and their gradient."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedblade.core.errors import Misconfigured
from fedblade.core.neck import Neck
from fedblade.core.network_building import BodyOptions, build_network
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as train
from fedblade.core.streams import Streams
from fedblade.core.terms import Term, TermValue
from fedblade.core.tree import tree_clone
from fedblade.heads import LinearHead
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg
from support.small_federation import CNN, assert_close, build, images, tasks

IMAGE = torch.zeros(1, 1, 6, 6, dtype=torch.float64)


class Staged(nn.Module):
    """Two convolutions that end linearly, so that rectifying changes them, and a linear stage without positions."""

    stages = ("early", "middle", "late")

    def __init__(self):
        super().__init__()
        self.late = nn.Linear(4, 5)
        self.middle = nn.Conv2d(3, 4, 3, padding=1)
        self.early = nn.Conv2d(1, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, inputs):
        maps = self.middle(self.norm(self.early(inputs)).relu())
        return self.late(maps.mean((2, 3)))


def network_of(make=Staged, example=IMAGE, **options):
    return build_network(make, LinearHead(), 3, example, Streams(0), BodyOptions(**options))


def some(count=7):
    return torch.randn(count, 1, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def by_hand(params, buffers, x, prefix="body."):
    """The stages of `Staged` in evaluation mode, before any mean over positions."""
    p = {name.removeprefix(prefix): leaf for name, leaf in (params | buffers).items()}
    early = F.conv2d(x, p["early.weight"], p["early.bias"], padding=1)
    normed = F.batch_norm(early, p["norm.running_mean"], p["norm.running_var"], p["norm.weight"], p["norm.bias"])
    middle = F.conv2d(normed.relu(), p["middle.weight"], p["middle.bias"], padding=1)
    return early, middle, F.linear(middle.mean((2, 3)), p["late.weight"], p["late.bias"])


@pytest.mark.parametrize("tap", ["plain", "relu"])
def test_stages_come_from_input_to_output_averaged_over_positions(tap):
    network, params, buffers, _ = network_of()
    features, stages = network.tapped(params, buffers, some(), training=False, tap=tap)
    assert [stage.shape for stage in stages] == [(7, 3), (7, 4), (7, 5)]
    assert torch.equal(features, network.features(params, buffers, some(), training=False))
    for stage, whole in zip(stages, by_hand(params, buffers, some()), strict=True):
        rectified = whole.clamp(min=0) if tap == "relu" else whole
        expected = rectified.flatten(2).mean(2) if whole.dim() > 2 else rectified
        torch.testing.assert_close(stage, expected, rtol=0, atol=1e-12)


def test_rectifying_comes_before_the_mean():
    network, params, buffers, _ = network_of()
    plain, rectified = (
        network.tapped(params, buffers, some(), training=False, tap=tap)[1] for tap in ("plain", "relu")
    )
    for a, b in zip(plain, rectified, strict=True):
        assert (b >= 0).all()
        assert not torch.allclose(a, b)
    assert not torch.allclose(rectified[0], plain[0].relu())


def test_without_a_tap_there_are_no_stages_and_no_hooks():
    network, params, buffers, _ = network_of()
    features, stages = network.tapped(params, buffers, some(), training=False, tap="none")
    assert stages == ()
    assert torch.equal(features, network.features(params, buffers, some(), training=False))


def hooks(network):
    return [name for name, module in network.body.named_modules() if module._forward_hooks]


def test_hooks_are_gone_afterwards():
    network, params, buffers, _ = network_of()
    network.tapped(params, buffers, some(), training=True, tap="plain")
    assert hooks(network) == []


def test_hooks_are_gone_after_a_failure_too():
    network, params, buffers, _ = network_of()
    with pytest.raises(RuntimeError):
        network.tapped(params, buffers, torch.zeros(2, 9, 6, 6, dtype=torch.float64), training=True, tap="relu")
    assert hooks(network) == []
    _, stages = network.tapped(params, buffers, some(), training=False, tap="plain")
    assert len(stages) == 3


@pytest.mark.parametrize("count", [1, 2])
def test_behind_necks_the_stages_are_those_of_the_body(count):
    plain, plain_params, buffers, _ = network_of()
    necked, params, own, _ = network_of(necks=[Neck(6, hidden=1.0)] * count)
    assert necked.stages == tuple("body." * count + name for name in Staged.stages)
    _, expected = plain.tapped(plain_params, buffers, some(), training=False, tap="plain")
    features, stages = necked.tapped(params, own, some(), training=False, tap="plain")
    assert features.shape == (7, 6)
    for a, b in zip(stages, expected, strict=True):
        assert torch.equal(a, b)


def test_a_body_that_names_no_stages_has_none():
    network, params, buffers, _ = network_of(lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 4)))
    assert network.stages == ()
    assert network.tapped(params, buffers, some(), training=False, tap="plain")[1] == ()


@dataclass(frozen=True, kw_only=True)
class Small(Term):
    """Mean square of the stages."""

    name: ClassVar[str] = "small"
    tap: str = "plain"

    @property
    def taps(self):
        return self.tap

    def __call__(self, view):
        return TermValue(sum(stage.square().mean() for stage in view.stages))


def local(setup, task):
    return train(setup.problem, receive(setup.problem, setup.start, task, None, 0.05))


def test_gradient_flows_through_the_stages_into_the_body():
    setup = build(
        replace(fedavg(), losses=(CrossEntropy(), Small(weight=0.5))), images(), momentum=0.0, weight_decay=0.0, **CNN
    )
    task = tasks(setup)[0]
    one = replace(task, phases=((task.phases[0][0],),))
    row, _ = local(setup, one)
    x, y = setup.problem.samples.batch(one.phases[0][0].indices)
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in setup.start.params.items()}
    p, total = leaves, 0.0
    maps = x
    for stage in ("stage1", "stage2"):
        maps = F.conv2d(maps, p[f"body.{stage}.0.weight"], padding=1)
        maps = F.batch_norm(maps, None, None, p[f"body.{stage}.1.weight"], p[f"body.{stage}.1.bias"], training=True)
        maps = F.max_pool2d(maps.relu(), 2)
        total = total + maps.mean((2, 3)).square().mean()
    z = F.linear(maps.flatten(1), p["body.linear.weight"], p["body.linear.bias"]).relu()
    loss = F.cross_entropy(F.linear(z, p["head.weight"], p["head.bias"]), y) + 0.5 * total
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    expected = {n: (w - 0.05 * g).detach() for (n, w), g in zip(leaves.items(), gradients, strict=True)}
    assert_close(row.params, expected, 1e-12)


def test_a_tap_alone_trains_what_lies_before_it():
    """The stages carry a graph of their own, though the head is not reached."""
    setup = build(replace(fedavg(), losses=(Small(),)), images(), momentum=0.0, weight_decay=0.0, **CNN)
    row, _ = local(setup, tasks(setup)[0])
    moved = {name for name, leaf in row.params.items() if not torch.equal(leaf, setup.start.params[name])}
    assert moved == {name for name in row.params if name.startswith(("body.stage1", "body.stage2"))}


def test_two_terms_may_share_a_tap_but_not_ask_for_different_ones():
    shared = build(replace(fedavg(), losses=(CrossEntropy(), Small(), Small(weight=2.0))), images(), **CNN)
    local(shared, tasks(shared)[0])
    both = build(replace(fedavg(), losses=(CrossEntropy(), Small(), Small(tap="relu"))), images(), **CNN)
    with pytest.raises(Misconfigured, match="give both the same tap"):
        local(both, tasks(both)[0])
    off = build(replace(fedavg(), losses=(CrossEntropy(), Small(), Small(tap="relu", weight=0.0))), images(), **CNN)
    local(off, tasks(off)[0])


def test_statistics_are_updated_once_when_tapped():
    network, params, buffers, _ = network_of()
    tapped, plain = tree_clone(buffers), tree_clone(buffers)
    network.tapped(params, tapped, some(), training=True, tap="relu")
    network.features(params, plain, some(), training=True)
    assert all(torch.equal(tapped[name], plain[name]) for name in plain)
    assert tapped["body.norm.num_batches_tracked"] == 1
