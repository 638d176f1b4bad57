"""Residual networks: shortcuts, stems and initial weights."""

import math

import pytest
import torch
from torch import nn

from fedblade.core.registry import models
from fedblade.models.resnet import BasicBlock, ZeroPadShortcut
from support.model_cases import conv_bn, randomised


def blocks_of(body):
    return [module for module in body.modules() if isinstance(module, BasicBlock)]


def slow_zero_pad(maps, width_out):
    """Shortcut A pixel by pixel: every second one, its channels in the middle of the wider output."""
    batch, width_in, height, width = maps.shape
    rows, columns = (height + 1) // 2, (width + 1) // 2
    padded = torch.zeros(batch, width_out, rows, columns, dtype=maps.dtype)
    for channel in range(width_in):
        for row in range(rows):
            for column in range(columns):
                padded[:, channel + (width_out - width_in) // 2, row, column] = maps[:, channel, 2 * row, 2 * column]
    return padded


@pytest.mark.parametrize("size", [(8, 8), (5, 7), (1, 2)])
def test_shortcut_a_against_a_slow_version(size):
    maps = torch.randn(2, 4, *size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shortcut = ZeroPadShortcut(4, 8, stride=2)
    assert torch.equal(shortcut(maps), slow_zero_pad(maps, 8))
    assert not shortcut(maps)[:, [0, 1, 6, 7]].any()
    assert not list(shortcut.parameters())


def test_shortcut_a_splits_an_odd_number_of_channels():
    padded = ZeroPadShortcut(2, 5, stride=1)(torch.ones(1, 2, 1, 1))
    assert padded.flatten().tolist() == [0, 1, 1, 0, 0]


def test_shortcut_a_passes_gradients_to_the_pixels_it_keeps():
    maps = torch.randn(1, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ZeroPadShortcut(2, 4, stride=2), maps)
    (gradient,) = torch.autograd.grad(ZeroPadShortcut(2, 4, stride=2)(maps).sum(), maps)
    assert gradient[0, 0].tolist() == [[1, 0, 1], [0, 0, 0], [1, 0, 1]]


@pytest.mark.parametrize("size", [16, 13])
@pytest.mark.parametrize("depth", [20, 32, 56])
def test_shortcuts_a_and_b_give_the_same_shapes(depth, size):
    with torch.device("meta"):
        shapes = []
        for shortcut in ("A", "B"):
            body = models.get(f"resnet{depth}").make((3, size, size), shortcut=shortcut)
            maps, found = torch.zeros(2, 3, size, size), []
            for name in body.stages:
                maps = body.get_submodule(name)(maps)
                found.append(maps.shape)
            shapes.append(found)
            assert len(blocks_of(body)) == 3 * (depth - 2) // 6
            projections = [isinstance(block.shortcut, nn.Sequential) for block in blocks_of(body)]
            assert sum(projections) == (2 if shortcut == "B" else 0)
    assert shapes[0] == shapes[1]


def test_wrn_is_four_times_as_wide_stem_included():
    with torch.device("meta"):
        wide = models.get("wrn56_4").make((3, 32, 32)).state_dict()
        plain = models.get("resnet56").make((3, 32, 32), shortcut="B").state_dict()
    assert wide.keys() == plain.keys()
    for name, leaf in plain.items():
        assert [4 * n if n >= 16 else n for n in leaf.shape] == list(wide[name].shape)


def slow_resnet(body, maps):
    """The paper's order: a block ends with its ReLU."""
    for block in blocks_of(body):
        outputs = conv_bn(block.conv2, conv_bn(block.conv1, maps).relu())
        if isinstance(block.shortcut, nn.Sequential):
            maps = conv_bn(block.shortcut, maps)
        elif outputs.shape != maps.shape:
            maps = slow_zero_pad(maps, outputs.shape[1])
        maps = (outputs + maps).relu()
    return maps.mean((2, 3))


@pytest.mark.parametrize(
    ("name", "knobs"), [("resnet20", {}), ("resnet20", {"shortcut": "B"}), ("resnet18", {}), ("wrn56_4", {})]
)
@torch.no_grad()
def test_against_the_order_of_the_paper(name, knobs):
    body, inputs = randomised(name, (3, 9, 8), **knobs)
    torch.testing.assert_close(body(inputs), slow_resnet(body, conv_bn(body.stem, inputs).relu()))


@torch.no_grad()
def test_the_imagenet_stem():
    body, inputs = randomised("resnet18_imagenet", (3, 48, 40))
    maps = nn.functional.max_pool2d(conv_bn(body.stem, inputs).relu(), 3, stride=2, padding=1)
    assert maps.shape == (3, 64, 12, 10)
    torch.testing.assert_close(body(inputs), slow_resnet(body, maps))


def convolutions(name, **knobs):
    torch.manual_seed(0)
    body = models.get(name).make((3, 8, 8), **knobs)
    return [module.weight for module in body.modules() if isinstance(module, nn.Conv2d) and module.weight.numel() > 5e3]


@pytest.mark.parametrize(
    ("name", "knobs", "variance"),
    [
        ("resnet20", {}, lambda fan_in, fan_out: 2 / fan_in),
        ("resnet20", {"init": "default"}, lambda fan_in, fan_out: 1 / (3 * fan_in)),
        ("resnet18", {}, lambda fan_in, fan_out: 1 / (3 * fan_in)),
        ("resnet18_imagenet", {}, lambda fan_in, fan_out: 2 / fan_out),
    ],
)
def test_initial_weights(name, knobs, variance):
    for weight in convolutions(name, **knobs):
        fan_in, fan_out = weight[0].numel(), weight[:, 0].numel()
        assert weight.std().item() == pytest.approx(math.sqrt(variance(fan_in, fan_out)), rel=0.05)
        assert abs(weight.mean()) < 0.05 * weight.std()
