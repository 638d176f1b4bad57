"""The convolutional network of LEAF for FEMNIST (Caldas et al., 2018)."""

from torch import Tensor, nn

from fedblade.core.registry import models
from fedblade.models._backbone import Backbone
from fedblade.models._layers import image_channels


class CnnFemnist(Backbone):
    """Two 5×5 convolutions (32 and 64 channels), each with a 2×2 max-pool and ReLU, and one linear layer with ReLU.

    ReLU follows the max-pool; the order of the two does not matter.
    """

    stages = ("stage1", "stage2")

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        self.dim = 2048
        self.stage1 = nn.Sequential(nn.Conv2d(channels, 32, 5, padding=2), nn.MaxPool2d(2))
        self.stage2 = nn.Sequential(nn.Conv2d(32, 64, 5, padding=2), nn.MaxPool2d(2))
        self.linear = nn.Linear(64 * (height // 4) * (width // 4), self.dim)
        self.relu = nn.ReLU()

    def features(self, inputs: Tensor) -> Tensor:
        """Features [batch, 2048] of images [batch, channels, height, width]."""
        maps = self.relu(self.stage2(self.relu(self.stage1(inputs))))
        features: Tensor = self.relu(self.linear(maps.flatten(1)))
        return features


@models.register()
def cnn_femnist(input_shape: tuple[int, ...]) -> CnnFemnist:
    """LEAF's network for FEMNIST (28×28), 2048 features; the linear layer adapts to the image size."""
    channels = image_channels("cnn_femnist", input_shape, smallest=4)
    return CnnFemnist(channels, *input_shape[1:])
