"""A small convolutional network for small images, the quickstart's model."""

from torch import Tensor, nn

from fedblade.core.registry import models
from fedblade.models._backbone import Backbone
from fedblade.models._layers import image_channels, require_positive


class SmallCnn(Backbone):
    """Two convolution stages (16 and 32 channels, BatchNorm, ReLU, 2×2 max-pool) and one linear layer with ReLU."""

    stages = ("stage1", "stage2")

    def __init__(self, input_shape: tuple[int, ...], dim: int) -> None:
        super().__init__()
        channels = image_channels("small_cnn", input_shape, smallest=4)
        require_positive("small_cnn", dim=dim)
        height, width = input_shape[1:]
        self.dim = dim
        self.stage1 = _stage(channels, 16)
        self.stage2 = _stage(16, 32)
        self.linear = nn.Linear(32 * (height // 4) * (width // 4), dim)
        self.relu = nn.ReLU()

    def features(self, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of images [batch, channels, height, width]."""
        maps: Tensor = self.stage2(self.stage1(inputs))
        features: Tensor = self.relu(self.linear(maps.flatten(1)))
        return features


def _stage(channels_in: int, channels_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


@models.register()
def small_cnn(input_shape: tuple[int, ...], dim: int = 128) -> SmallCnn:
    """Two convolutions and a linear layer, for images of 8×8 pixels and up."""
    return SmallCnn(input_shape, dim)
