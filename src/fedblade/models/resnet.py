"""Residual networks of basic blocks (He et al., CVPR 2016), for small images and for ImageNet.

A block activates its input and returns the sum before the next activation. This is the paper's network, with the ReLU
between two blocks moved into the second block, so that the output of a stage is the value before the ReLU.
"""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.registry import models
from fedblade.models._backbone import Backbone
from fedblade.models._layers import conv_norm, he_normal, image_channels

Shortcut = Literal["A", "B"]
Init = Literal["he", "default"]


class ZeroPadShortcut(nn.Module):
    """Shortcut A: every `stride`-th pixel, and zero channels, half of them before the input's channels, half after."""

    def __init__(self, width_in: int, width_out: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.before = (width_out - width_in) // 2
        self.after = width_out - width_in - self.before

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps [batch, width_out, …] of maps [batch, width_in, …]."""
        kept = inputs[:, :, :: self.stride, :: self.stride]
        return functional.pad(kept, (0, 0, 0, 0, self.before, self.after))


class BasicBlock(nn.Module):
    """ReLU, then two 3×3 convolutions plus the shortcut: identity, zero padding (A) or a 1×1 convolution (B)."""

    def __init__(self, width_in: int, width_out: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = conv_norm(width_in, width_out, stride=stride)
        self.relu_inside = nn.ReLU(inplace=True)
        self.conv2 = conv_norm(width_out, width_out)
        self.shortcut: nn.Module
        if stride == 1 and width_in == width_out:
            self.shortcut = nn.Identity()
        elif shortcut == "A":
            self.shortcut = ZeroPadShortcut(width_in, width_out, stride)
        else:
            self.shortcut = conv_norm(width_in, width_out, kernel=1, stride=stride)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps [batch, width_out, …] before their ReLU, of maps [batch, width_in, …] before their ReLU."""
        active = self.relu(inputs)
        outputs: Tensor = self.conv2(self.relu_inside(self.conv1(active))) + self.shortcut(active)
        return outputs


class ResNet(Backbone):
    """Stem, one stage per width with a stride of 2 from the second on, mean over the pixels."""

    def __init__(self, stem: nn.Sequential, width: int, widths: Sequence[int], blocks: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.dim = widths[-1]
        self.stem = stem
        self.stages = ("stem", *(f"stage{number}" for number in range(1, len(widths) + 1)))
        for number, width_out in enumerate(widths, start=1):
            first = BasicBlock(width, width_out, 1 if number == 1 else 2, shortcut)
            rest = [BasicBlock(width_out, width_out, 1, shortcut) for _ in range(blocks - 1)]
            self.add_module(f"stage{number}", nn.Sequential(first, *rest))
            width = width_out
        self.relu = nn.ReLU()

    def features(self, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of images [batch, channels, height, width]."""
        maps = inputs
        for name in self.stages:
            maps = getattr(self, name)(maps)
        features: Tensor = self.relu(maps).mean((2, 3))
        return features


def _small_resnet(
    model: str, input_shape: tuple[int, ...], widths: Sequence[int], blocks: int, shortcut: Shortcut
) -> ResNet:
    """A network for small images: a 3×3 stem of the first width, without stride."""
    _require(model, "shortcut", shortcut, ("A", "B"))
    stem = conv_norm(image_channels(model, input_shape), widths[0])
    return ResNet(stem, widths[0], widths, blocks, shortcut)


def _narrow_resnet(depth: int, input_shape: tuple[int, ...], shortcut: Shortcut, init: Init) -> ResNet:
    """The CIFAR networks of the paper: widths 16, 32, 64 and (depth - 2)/6 blocks in each stage."""
    model = f"resnet{depth}"
    _require(model, "init", init, ("he", "default"))
    body = _small_resnet(model, input_shape, (16, 32, 64), (depth - 2) // 6, shortcut)
    if init == "he":
        he_normal(body, "fan_in")
    return body


def _require(model: str, knob: str, given: str, options: tuple[str, ...]) -> None:
    if given not in options:
        raise Misconfigured(f"model '{model}' has no {knob} {given!r}.{nearest(str(given), options)}")


@models.register()
def resnet18(input_shape: tuple[int, ...]) -> ResNet:
    """ResNet-18 for small images, 512 features; PyTorch's initial weights, as in the code of the federated papers."""
    return _small_resnet("resnet18", input_shape, (64, 128, 256, 512), 2, "B")


@models.register()
def resnet18_imagenet(input_shape: tuple[int, ...]) -> ResNet:
    """ResNet-18 with the 7×7 stride-2 stem and max-pool of ImageNet, 512 features; He's initial weights.

    The code of FedDr+ starts the same network with PyTorch's default weights.
    """
    channels = image_channels("resnet18_imagenet", input_shape)
    # The ReLU of the stem is the one in the first block: it may follow the max-pool, where it is cheaper.
    stem = nn.Sequential(*conv_norm(channels, 64, kernel=7, stride=2), nn.MaxPool2d(3, stride=2, padding=1))
    body = ResNet(stem, 64, (64, 128, 256, 512), 2, "B")
    he_normal(body, "fan_out")
    return body


@models.register()
def resnet20(input_shape: tuple[int, ...], shortcut: Shortcut = "A", init: Init = "he") -> ResNet:
    """ResNet-20 for small images, 64 features.

    `shortcut` is "A" (zero padding, no parameters) or "B" (1×1 convolution); `init` is "he", as in the paper, or
    "default" for PyTorch's. FedDecorr's code has A and He's weights, FedETF's code has B and PyTorch's weights. Before
    a BatchNorm the scale of the weights acts as a step size: He's weights are √6 times larger, so the same lr changes
    their direction six times more slowly.
    """
    return _narrow_resnet(20, input_shape, shortcut, init)


@models.register()
def resnet32(input_shape: tuple[int, ...], shortcut: Shortcut = "A", init: Init = "he") -> ResNet:
    """ResNet-32 for small images, 64 features; knobs as for `resnet20`."""
    return _narrow_resnet(32, input_shape, shortcut, init)


@models.register()
def resnet56(input_shape: tuple[int, ...], shortcut: Shortcut = "A", init: Init = "he") -> ResNet:
    """ResNet-56 for small images, 64 features; knobs as for `resnet20`."""
    return _narrow_resnet(56, input_shape, shortcut, init)


@models.register()
def wrn56_4(input_shape: tuple[int, ...]) -> ResNet:
    """ResNet-56 with shortcut B and four times the width, stem included, 256 features; PyTorch's initial weights."""
    return _small_resnet("wrn56_4", input_shape, (64, 128, 256), 9, "B")
