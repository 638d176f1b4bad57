"""DenseNet-121 for small images (Huang et al., CVPR 2017): growth 32, bottlenecks, transitions that halve."""

import torch
from torch import Tensor, nn

from fedblade.core.registry import models
from fedblade.models._backbone import Backbone
from fedblade.models._layers import image_channels

_GROWTH = 32
_BLOCKS = (6, 12, 24, 16)


def _norm_conv(width_in: int, width_out: int, kernel: int) -> nn.Sequential:
    """BatchNorm, ReLU, convolution: the order of this architecture."""
    return nn.Sequential(
        nn.BatchNorm2d(width_in),
        nn.ReLU(inplace=True),
        nn.Conv2d(width_in, width_out, kernel, padding=kernel // 2, bias=False),
    )


class DenseLayer(nn.Module):
    """Appends `growth` new channels, computed from all earlier channels, to its input."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.bottleneck = _norm_conv(width, 4 * growth, kernel=1)
        self.grow = _norm_conv(4 * growth, growth, kernel=3)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps [batch, width + growth, …] of maps [batch, width, …]."""
        return torch.cat((inputs, self.grow(self.bottleneck(inputs))), dim=1)


class DenseNet(Backbone):
    """Stem, four dense stages, mean over the pixels.

    From the second stage on, a stage begins with the transition that halves width and image and ends with its dense
    block; the last stage ends with the final BatchNorm.
    """

    stages = ("stem", "stage1", "stage2", "stage3", "stage4")

    def __init__(self, channels: int) -> None:
        super().__init__()
        width, built = 2 * _GROWTH, []
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        for number, repeats in enumerate(_BLOCKS):
            layers: list[nn.Module] = []
            if number > 0:
                layers += [_norm_conv(width, width // 2, kernel=1), nn.AvgPool2d(2)]
                width //= 2
            layers += [DenseLayer(width + index * _GROWTH, _GROWTH) for index in range(repeats)]
            width += repeats * _GROWTH
            built.append(layers)
        built[-1].append(nn.BatchNorm2d(width))
        self.stage1, self.stage2, self.stage3, self.stage4 = (nn.Sequential(*layers) for layers in built)
        self.relu = nn.ReLU()
        self.dim = width

    def features(self, inputs: Tensor) -> Tensor:
        """Features [batch, 1024] of images [batch, channels, height, width]."""
        maps = self.stage2(self.stage1(self.stem(inputs)))
        features: Tensor = self.relu(self.stage4(self.stage3(maps))).mean((2, 3))
        return features


@models.register()
def densenet121(input_shape: tuple[int, ...]) -> DenseNet:
    """DenseNet-121 for small images of 8×8 pixels and up, 1024 features."""
    return DenseNet(image_channels("densenet121", input_shape, smallest=8))
