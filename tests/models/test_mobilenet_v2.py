"""MobileNetV2: the structure of the paper, and the numbers of a slow version."""

import torch
from torch import nn

from fedblade.core.registry import models
from fedblade.models.mobilenet_v2 import InvertedResidual
from support.model_cases import conv_bn, randomised

ROWS = [(1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


def blocks_of(body):
    return [module for module in body.modules() if isinstance(module, InvertedResidual)]


def meta_body():
    with torch.device("meta"):
        return models.get("mobilenet_v2").make((3, 32, 32))


def test_blocks_are_the_rows_of_the_papers_table():
    blocks, width = iter(blocks_of(meta_body())), 32
    for expansion, width_out, repeats, first_stride in ROWS:
        for index in range(repeats):
            block = next(blocks)
            widen, middle, narrow = block.expand[0], block.depthwise[0], block.project[0]
            assert (widen.in_channels, widen.out_channels) == (width, expansion * width)
            assert middle.groups == middle.in_channels == middle.out_channels == expansion * width
            assert middle.stride == ((first_stride, first_stride) if index == 0 else (1, 1))
            assert (middle.kernel_size, widen.kernel_size, narrow.kernel_size) == ((3, 3), (1, 1), (1, 1))
            assert (narrow.in_channels, narrow.out_channels) == (expansion * width, width_out)
            width = width_out
    assert next(blocks, None) is None


def test_shortcuts_exist_at_stride_one_and_convolve_where_the_width_changes():
    for block in blocks_of(meta_body()):
        width_in, width_out = block.expand[0].in_channels, block.project[0].out_channels
        if block.depthwise[0].stride == (2, 2):
            assert block.shortcut is None
        elif width_in == width_out:
            assert isinstance(block.shortcut, nn.Identity)
        else:
            conv, norm = block.shortcut
            assert (conv.kernel_size, conv.in_channels, conv.out_channels) == ((1, 1), width_in, width_out)
            assert isinstance(norm, nn.BatchNorm2d)
    kinds = [type(block.shortcut).__name__ for block in blocks_of(meta_body())]
    assert (kinds.count("Sequential"), kinds.count("NoneType"), kinds.count("Identity")) == (4, 3, 10)


def test_relu_not_relu6():
    activations = [type(module) for module in meta_body().modules() if "ReLU" in type(module).__name__]
    assert set(activations) == {nn.ReLU}
    body = models.get("mobilenet_v2").make((3, 8, 8)).eval()
    with torch.no_grad():
        body.stage4[-1][1].bias.fill_(100.0)
        assert body(torch.zeros(1, 3, 8, 8)).min() > 6


def test_stages_end_at_the_resolutions():
    body, maps, sizes = meta_body(), torch.zeros(1, 3, 32, 32, device="meta"), []
    for name in body.stages:
        maps = body.get_submodule(name)(maps)
        sizes.append(tuple(maps.shape[1:]))
    assert sizes == [(32, 32, 32), (24, 32, 32), (32, 16, 16), (96, 8, 8), (1280, 4, 4)]


@torch.no_grad()
def test_against_a_slow_version():
    body, inputs = randomised("mobilenet_v2", (3, 16, 16))
    maps = conv_bn(body.stem, inputs).relu()
    for block in blocks_of(body):
        hidden = conv_bn(block.depthwise, conv_bn(block.expand, maps).relu()).relu()
        outputs = conv_bn(block.project, hidden)
        if outputs.shape[2:] == maps.shape[2:] and block.depthwise[0].stride == (1, 1):
            outputs = outputs + (maps if outputs.shape == maps.shape else conv_bn(block.shortcut, maps))
        maps = outputs
    torch.testing.assert_close(body(inputs), conv_bn(body.stage4[-1], maps).relu().mean((2, 3)))
