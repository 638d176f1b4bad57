"""A body with a client axis against the body itself, for every registered model."""

import pytest
import torch
from torch import nn

from fedblade.core.errors import Unsupported
from fedblade.core.network_building import build_network
from fedblade.core.registry import models
from fedblade.core.streams import Streams
from fedblade.engines.layers import StackedBody
from fedblade.engines.layers._graph import relu_after_norm, relu_after_pooling, traced
from fedblade.heads import LinearHead
from support.model_cases import CASES
from support.sample import thorough

CLIENTS, BATCH = 2, 6
LARGE = ("alexnet_bn", "densenet121", "efficientnet_b0", "resnet18_imagenet", "wrn56_4", "vgg11", "resnet18")
"""Models that take long in float64."""
QUICK = ("mlp", "small_cnn", "resnet20")
MODELS = [
    pytest.param(
        case,
        marks=[pytest.mark.slow] * (case.name in LARGE) + [pytest.mark.thorough] * (case.name not in QUICK),
        id=case.name,
    )
    for case in CASES
]


def test_every_model_has_a_case():
    assert {case.name for case in CASES} == set(models.names())


def apart(tree, seed):
    """Tensors [clients, …] of clients that differ a little."""
    generator = torch.Generator().manual_seed(seed)

    def moved(leaf):
        if not leaf.is_floating_point():
            return leaf.expand(CLIENTS, *leaf.shape).clone()
        noise = torch.rand(CLIENTS, *leaf.shape, generator=generator, dtype=leaf.dtype)
        return leaf + 0.1 * noise * leaf.abs() + 0.01 * noise

    return {name: moved(leaf) for name, leaf in tree.items()}


def close(found, expected, what, tolerance=1e-9):
    assert found.shape == expected.shape, what
    gap = (found - expected).abs()
    largest = expected.abs().max() if expected.numel() else 0
    assert (gap <= tolerance * (1 + largest)).all(), f"{what} differs by {gap.max():.1e}"


def compare(make, inputs, *, training, tap="none", sizes=None, gradients=True):
    """Features, stages, buffers and gradients of each client alone; `sizes` are the real samples of each."""
    network, params, buffers, _ = build_network(make, LinearHead(), 3, inputs[0, :1], Streams(0))
    params = {name: leaf for name, leaf in params.items() if name.startswith("body.")}
    params, buffers = apart(params, 1), apart(buffers, 2)
    leaves = {name: leaf.clone().requires_grad_(gradients) for name, leaf in params.items()}
    held = {name: leaf.clone() for name, leaf in buffers.items()}
    mask = None if sizes is None else torch.arange(inputs.shape[1]) < torch.tensor(sizes)[:, None]
    stacked = StackedBody(network.body, network.stages)
    features, stages = stacked(leaves, held, inputs, mask, training=training, tap=tap)
    up = torch.randn(features.shape, generator=torch.Generator().manual_seed(3), dtype=features.dtype)
    up = up if mask is None else up * mask[..., None]
    grads = torch.autograd.grad(features, list(leaves.values()), up, allow_unused=True) if gradients else []
    for client in range(CLIENTS):
        size = inputs.shape[1] if sizes is None else sizes[client]
        mine = {name: leaf[client].clone().requires_grad_(gradients) for name, leaf in params.items()}
        own = {name: leaf[client].clone() for name, leaf in buffers.items()}
        expected, tapped = network.tapped(mine, own, inputs[client, :size], training=training, tap=tap)
        close(features[client, :size], expected, "features")
        assert len(stages) == len(tapped)
        for number, (found, wanted) in enumerate(zip(stages, tapped, strict=True)):
            close(found[client, :size], wanted, f"stage {number}")
        for name, leaf in own.items():
            close(held[name][client].double(), leaf.double(), name)
        if gradients:
            alone = torch.autograd.grad(expected, list(mine.values()), up[client, :size], allow_unused=True)
            for name, found, wanted in zip(mine, grads, alone, strict=True):
                assert (found is None) == (wanted is None), name
                if wanted is not None:
                    close(found[client], wanted, name)
    return features, stages


def inputs_of(case, batch=BATCH):
    return torch.stack([case.inputs(batch, torch.float64).roll(shift, 0) for shift in range(CLIENTS)])


@pytest.mark.parametrize("case", MODELS)
def test_models_with_a_client_axis_are_the_models(case):
    """Training with some padding, then evaluation with the stages; features, statistics, gradients."""
    inputs = inputs_of(case)
    if case.name != "char_lstm":
        inputs[1, 5:] = 1e3
    compare(case.make, inputs, training=True, sizes=(6, 5))
    _, stages = compare(case.make, inputs_of(case, 2), training=False, tap="relu", gradients=False)
    if case.widths:
        assert [stage.shape[-1] for stage in stages] == list(case.widths)


@pytest.mark.parametrize("tap", ["none", "plain", "relu"])
@pytest.mark.parametrize("name", ["small_cnn", *thorough("mobilenet_v1", "char_lstm")])
def test_stages_come_in_order_and_as_they_are_tapped(name, tap):
    case = next(case for case in CASES if case.name == name)
    _, stages = compare(case.make, inputs_of(case), training=True, tap=tap)
    assert len(stages) == (0 if tap == "none" else len(case.widths))


class Tied(nn.Module):
    """One matrix under two names, and one layer called twice."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(6)
        self.again = self.norm

    def forward(self, x):
        return self.again(self.second(self.norm(self.first(x)).relu()))


class Stages(nn.Module):
    """Stages whose outputs a layer that works in place changes afterwards, named out of order, one of them twice."""

    stages = ("second", "first")

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.BatchNorm2d(2), nn.Conv2d(2, 2, 1)
        self.act = nn.LeakyReLU(0.2, inplace=True)

    def forward(self, x):
        x = self.act(self.second(self.act(self.first(x))))
        return self.act(self.second(x)).flatten(1)


class Fused(nn.Module):
    """A ReLU after a norm that another layer reads too, one that nobody else reads, and one called twice."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.relu = nn.BatchNorm2d(2), nn.BatchNorm2d(2), nn.ReLU()

    def forward(self, x):
        x = self.one(x)
        return (self.relu(self.two(self.relu(x))) - x).mean((2, 3))


class Pooled(nn.Module):
    """ReLUs before a max-pool: behind a norm, behind an untapped and a tapped layer, and with another reader.

    The first pools numbers of which many are equal, and many windows hold nothing above zero.
    """

    stages = ("tapped",)

    def __init__(self):
        super().__init__()
        self.norm, self.conv, self.tapped = nn.BatchNorm2d(2), nn.Conv2d(2, 2, 1), nn.ReLU()
        self.relu, self.pool, self.halve = nn.ReLU(), nn.MaxPool2d(3, 1, padding=1), nn.MaxPool2d(2, ceil_mode=True)

    def forward(self, x):
        x = self.pool(self.relu(self.norm(x.round())))
        x = self.pool(self.tapped(self.conv(x) - 0.1))
        both = self.relu(self.conv(x))
        return torch.flatten(self.halve(self.relu(self.conv(self.halve(both) - both[:, :, :2, :2]))), 1)


@pytest.mark.parametrize("sizes", [None, (4, 3)])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("tap", ["none", "plain", "relu"])
@pytest.mark.parametrize(
    ("make", "shape"), [(Tied, (6,)), (Stages, (2, 3, 3)), (Fused, (2, 3, 3)), (Pooled, (2, 3, 3))]
)
def test_awkward_bodies(make, shape, tap, training, sizes):
    inputs = torch.randn(CLIENTS, 4, *shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    _, stages = compare(make, inputs, training=training, tap=tap, sizes=sizes)
    assert len(stages) == (0 if tap == "none" else {Stages: 3, Pooled: 1}.get(make, 0))


def test_a_relu_changes_places_with_the_pooling_layer_that_alone_reads_it():
    """Otherwise the tests above would not see the other order."""
    body = Pooled()
    modules = dict(body.named_modules())
    graph, ends = traced(body, Pooled.stages)
    moved = relu_after_pooling(graph, modules, ends)
    assert [(relu.target, pool.target) for relu, pool in moved.items()] == [("relu", "pool"), ("relu", "halve")]
    assert [norm.target for norm in relu_after_norm(graph, modules, ends).values()] == ["norm"]


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Counts(nn.Module):
    def forward(self, x):
        return torch.stack([row * i for i, row in enumerate(x)])


class Holds(nn.Module):
    """A tensor that is no parameter and no buffer would not move to the run's device or type."""

    def __init__(self):
        super().__init__()
        self.held = torch.ones(6)

    def forward(self, x):
        return x * self.held


@pytest.mark.parametrize("make", [Branches, Counts])
def test_a_body_without_a_graph_is_refused(make):
    with pytest.raises(Unsupported, match="cannot be traced"):
        StackedBody(make(), ())


def test_tracing_leaves_the_body_as_it_was():
    body = Tied().eval()
    before = {name: leaf.clone() for name, leaf in body.state_dict().items()}
    StackedBody(body, ())
    assert not body.training
    assert all(torch.equal(leaf, before[name]) for name, leaf in body.state_dict().items())


def test_a_tensor_that_is_no_buffer_is_refused():
    with pytest.raises(Unsupported, match="held is neither a parameter nor a buffer"):
        StackedBody(Holds(), ())
