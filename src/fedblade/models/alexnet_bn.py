"""AlexNet with BatchNorm (Krizhevsky et al., 2012, in the form of FedBN, Li et al., ICLR 2021), without dropout."""

from torch import Tensor, nn

from fedblade.core.registry import models
from fedblade.models._backbone import Backbone
from fedblade.models._layers import image_channels

_GRID = 6


def _stage(width_in: int, width_out: int, kernel: int, *, stride: int = 1, padding: int, pool: bool) -> nn.Sequential:
    """Convolution with bias, BatchNorm and, with `pool`, the overlapping 3×3 max-pool; ReLU follows outside."""
    layers: list[nn.Module] = [
        nn.Conv2d(width_in, width_out, kernel, stride, padding),
        nn.BatchNorm2d(width_out),
    ]
    return nn.Sequential(*layers, nn.MaxPool2d(3, stride=2)) if pool else nn.Sequential(*layers)


class AlexNetBn(Backbone):
    """Five convolutions, an average pool to 6×6 and two linear layers of 4096 units, all with BatchNorm and ReLU.

    ReLU follows the max-pool; the order of the two does not matter.
    """

    stages = ("stage1", "stage2", "stage3", "stage4", "stage5")

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.dim = 4096
        self.stage1 = _stage(channels, 64, 11, stride=4, padding=2, pool=True)
        self.stage2 = _stage(64, 192, 5, padding=2, pool=True)
        self.stage3 = _stage(192, 384, 3, padding=1, pool=False)
        self.stage4 = _stage(384, 256, 3, padding=1, pool=False)
        self.stage5 = _stage(256, 256, 3, padding=1, pool=True)
        self.pool = nn.AdaptiveAvgPool2d(_GRID)
        self.linear1 = nn.Sequential(nn.Linear(256 * _GRID * _GRID, 4096), nn.BatchNorm1d(4096))
        self.linear2 = nn.Sequential(nn.Linear(4096, self.dim), nn.BatchNorm1d(self.dim))
        self.relu = nn.ReLU()

    def features(self, inputs: Tensor) -> Tensor:
        """Features [batch, 4096] of images [batch, channels, height, width]."""
        maps = inputs
        for name in self.stages:
            maps = self.relu(getattr(self, name)(maps))
        hidden = self.relu(self.linear1(self.pool(maps).flatten(1)))
        features: Tensor = self.relu(self.linear2(hidden))
        return features


@models.register()
def alexnet_bn(input_shape: tuple[int, ...]) -> AlexNetBn:
    """AlexNet with BatchNorm for large images (256×256; 63×63 and up), 4096 features."""
    return AlexNetBn(image_channels("alexnet_bn", input_shape, smallest=63))
