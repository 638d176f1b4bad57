"""Normalisation and pooling in one, against the plain layers of every client."""

import pytest
import torch
from torch import nn

from fedblade.engines.layers import StackedBody, _norm_pool

CLIENTS = 3


class Net(nn.Module):
    def __init__(self, *, relu=True, pool=None, affine=True, track=True, channels=4):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=affine, track_running_stats=track)
        self.relu = nn.ReLU() if relu else nn.Identity()
        self.pool = nn.MaxPool2d(2) if pool is None else pool
        self.between = relu

    def forward(self, x):
        x = self.norm(x)
        return self.pool(self.relu(x) if self.between else x).flatten(1)


def tensors(net, *, sign=1.0):
    """Own parameters and statistics for every client."""
    generator = torch.Generator().manual_seed(1)

    def rows(leaf):
        noise = torch.randn(CLIENTS, *leaf.shape, generator=generator, dtype=torch.float64)
        return noise.abs().mul(sign).add(0.1 * sign) if leaf.is_floating_point() else leaf.expand(CLIENTS).clone()

    params = {f"body.{name}": rows(leaf).requires_grad_() for name, leaf in net.named_parameters()}
    return params, {f"body.{name}": rows(leaf).abs() for name, leaf in net.named_buffers()}


def alone(net, params, buffers, inputs):
    """The plain module, client by client; buffers change in place."""
    outputs = []
    for client in range(CLIENTS):
        own = {name.removeprefix("body."): leaf[client] for name, leaf in (params | buffers).items()}
        outputs.append(torch.func.functional_call(net.double().train(), own, (inputs[client],)))
    return torch.stack(outputs)


def check(net, inputs, *, sign=1.0, training=True):
    params, buffers = tensors(net, sign=sign)
    twin = {name: leaf.clone() for name, leaf in buffers.items()}
    expected = alone(net, params, buffers, inputs)
    body = StackedBody(net, ())
    found, _ = body(params, twin, inputs, None, training=training, tap="none")
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for name, leaf in buffers.items():
        torch.testing.assert_close(twin[name], leaf, rtol=1e-10, atol=1e-10, msg=name)
    up = torch.randn(expected.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    leaves = [inputs, *params.values()]
    wanted = torch.autograd.grad(expected, leaves, up)
    for own, other in zip(torch.autograd.grad(found, leaves, up), wanted, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-9)


def maps(height=8, width=8, batch=5, channels=4):
    generator = torch.Generator().manual_seed(2)
    values = torch.randn(CLIENTS, batch, channels, height, width, generator=generator, dtype=torch.float64)
    return (values * 2 + 1).requires_grad_()


@pytest.fixture
def counted(monkeypatch):
    """How often the fused form was taken."""
    calls = []
    plain = _norm_pool.NormPool.forward
    monkeypatch.setattr(_norm_pool.NormPool, "forward", staticmethod(lambda *args: calls.append(args) or plain(*args)))
    return calls


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("size", [(8, 8), (7, 9), (4, 6)])
@pytest.mark.parametrize("kernel", [2, 3, (2, 1)])
def test_both_in_one_equal_one_after_the_other(counted, relu, size, kernel):
    """Windows that do not fill the map leave its edge out."""
    check(Net(relu=relu, pool=nn.MaxPool2d(kernel)), maps(*size))
    assert counted


def test_maps_without_statistics_to_keep(counted):
    check(Net(track=False), maps())
    assert counted


@pytest.mark.parametrize("sign", [-1.0, 0.0])
def test_weights_that_turn_the_order_around_take_the_plain_way(counted, sign):
    check(Net(), maps(), sign=sign)
    assert not counted


@pytest.mark.parametrize(
    "pool",
    [nn.MaxPool2d(3, stride=2), nn.MaxPool2d(2, padding=1), nn.MaxPool2d(3, ceil_mode=True), nn.AvgPool2d(2)],
    ids=["overlap", "padding", "ceil", "mean"],
)
def test_other_pooling_takes_the_plain_way(counted, pool):
    check(Net(pool=pool), maps())
    assert not counted


def test_constant_maps_and_ties(counted):
    """Equal numbers in a window: the first of them has the gradient, either way."""
    inputs = torch.ones(CLIENTS, 4, 4, 6, 6, dtype=torch.float64)
    inputs[..., 2:4, 2:4] = 2.0
    check(Net(), inputs.requires_grad_())
    assert counted


def test_norms_without_weights_take_the_plain_way(counted):
    check(Net(affine=False), maps())
    assert not counted


class InPlace(nn.Module):
    def __init__(self, last, *, first):
        super().__init__()
        self.norm, self.first, self.pool, self.last = nn.BatchNorm2d(4), first, nn.MaxPool2d(2), last

    def forward(self, x):
        return self.last(self.pool(self.first(self.norm(x)))).flatten(1)


@pytest.mark.parametrize("last", [nn.ReLU(inplace=True), nn.ReLU6(inplace=True), nn.Hardswish(inplace=True)])
@pytest.mark.parametrize("first", [nn.Identity(), nn.ReLU()])
def test_layers_that_follow_may_work_in_place(last, first):
    check(InPlace(last, first=first), maps())


class Pooled(nn.Module):
    """Normalisation, pooling, then an activation that changes its input."""

    def __init__(self, last):
        super().__init__()
        self.norm, self.pool, self.last = nn.BatchNorm2d(4), nn.MaxPool2d(2), last

    def forward(self, x):
        return self.last(self.pool(self.norm(x))).flatten(1)


@pytest.mark.parametrize("last", [nn.ReLU(inplace=True), nn.ReLU6(inplace=True), nn.Hardswish(inplace=True)])
def test_outputs_of_both_in_one_may_be_changed_in_place(counted, last):
    check(Pooled(last), maps())
    assert counted
