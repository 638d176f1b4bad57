"""Models against slow versions written from the papers, in float64 and training mode."""

import torch
from torch import nn

from fedblade.core.registry import models
from support.model_cases import conv_bn, randomised


@torch.no_grad()
def test_mobilenet_v1_is_the_network_of_the_paper():
    body, inputs = randomised("mobilenet_v1", (3, 16, 16))
    maps = conv_bn(body.stem, inputs).relu()
    strides = []
    for number in range(1, 6):
        for block in getattr(body, f"stage{number}"):
            maps = conv_bn(block[1], maps).relu()
            maps = conv_bn(block[3], maps).relu()
            strides.append(block[1][0].stride[0])
            assert block[1][0].groups == block[1][0].in_channels
    assert strides == [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1]
    torch.testing.assert_close(body(inputs), maps.mean((2, 3)))


@torch.no_grad()
def test_vgg11_is_the_network_of_the_paper():
    body, inputs = randomised("vgg11", (3, 64, 64))
    maps = inputs
    for number in range(1, 6):
        for layer in getattr(body, f"stage{number}"):
            if isinstance(layer, nn.Conv2d):
                maps = nn.functional.conv2d(maps, layer.weight, layer.bias, padding=1).relu()
        maps = nn.functional.max_pool2d(maps, 2)
    pooled = maps.flatten(2).mean(2)
    expected = body.linear2(body.linear1(pooled).relu()).relu()
    torch.testing.assert_close(body(inputs), expected)


@torch.no_grad()
def test_vgg11_keeps_the_signal_up():
    """He's weights and zero biases bring differences between images to the last stage; PyTorch's lose them."""
    torch.manual_seed(0)
    body = models.get("vgg11").make((3, 32, 32))
    convolutions = [module for module in body.modules() if isinstance(module, nn.Conv2d)]
    assert not any(layer.bias.any() for layer in convolutions)
    inputs, stages = torch.randn(8, 3, 32, 32), [body.get_submodule(name) for name in body.stages]
    spread = nn.Sequential(*stages)(inputs).std(dim=0).mean()
    for layer in convolutions:
        layer.reset_parameters()
    lost = nn.Sequential(*stages)(inputs).std(dim=0).mean()
    assert spread > 0.01
    assert lost < spread / 30


@torch.no_grad()
def test_alexnet_bn_is_the_network_of_fedbn():
    body, inputs = randomised("alexnet_bn", (3, 63, 63))
    maps = inputs
    for number in range(1, 6):
        maps = conv_bn(getattr(body, f"stage{number}"), maps).relu()
        if number in (1, 2, 5):
            maps = nn.functional.max_pool2d(maps, 3, 2)
    hidden = nn.functional.adaptive_avg_pool2d(maps, 6).flatten(1)
    for linear, norm in (body.linear1, body.linear2):
        hidden = linear(hidden)
        scaled = (hidden - hidden.mean(0)) / (hidden.var(0, correction=0) + norm.eps).sqrt()
        hidden = (scaled * norm.weight + norm.bias).relu()
    torch.testing.assert_close(body(inputs), hidden)


@torch.no_grad()
def test_cnn_femnist_is_the_network_of_leaf():
    body, inputs = randomised("cnn_femnist", (1, 28, 28))
    maps = nn.functional.max_pool2d(body.stage1[0](inputs).relu(), 2)
    maps = nn.functional.max_pool2d(body.stage2[0](maps).relu(), 2)
    torch.testing.assert_close(body(inputs), body.linear(maps.flatten(1)).relu())


@torch.no_grad()
def test_a_dense_layer_sees_all_channels_before_it():
    body, _ = randomised("densenet121", (3, 8, 8))
    maps = torch.randn(2, 64, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    grown = [maps]
    for layer in body.stage1:
        seen = torch.cat(grown, dim=1)
        hidden = layer.bottleneck[2](layer.bottleneck[0](seen).relu())
        grown.append(layer.grow[2](layer.grow[0](hidden).relu()))
    torch.testing.assert_close(body.stage1(maps), torch.cat(grown, dim=1))
    assert [len(getattr(body, f"stage{i}")) for i in (1, 2, 3, 4)] == [6, 2 + 12, 2 + 24, 2 + 16 + 1]
    assert [getattr(body, f"stage{i}")[0][2].out_channels for i in (2, 3, 4)] == [128, 256, 512]


@torch.no_grad()
def test_char_lstm_step_by_step():
    body = models.get("char_lstm").make((5,), num_characters=7).double()
    characters = torch.tensor([[0, 6, 3, 3, 1], [2, 2, 2, 5, 4]])
    sequence = [body.embedding.table.weight[characters[:, step]] for step in range(5)]
    lstm = body.recurrent.lstm
    for layer in range(2):
        w, u, b, c = (getattr(lstm, f"{kind}_l{layer}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        hidden = cell = torch.zeros(2, 256, dtype=torch.float64)
        for step, each in enumerate(sequence):
            enter, forget, update, leave = (each @ w.T + b + hidden @ u.T + c).chunk(4, dim=1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * update.tanh()
            hidden = leave.sigmoid() * cell.tanh()
            sequence[step] = hidden
    for given in (characters, characters.double(), characters.float()):
        torch.testing.assert_close(body(given), hidden)
