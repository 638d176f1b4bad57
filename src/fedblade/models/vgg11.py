"""VGG-11 without normalisation for small images (Simonyan and Zisserman, ICLR 2015), with two layers of 512 units."""

from torch import Tensor, nn

from fedblade.core.registry import models
from fedblade.models._backbone import Backbone
from fedblade.models._layers import he_normal, image_channels

# Widths of the convolutions of each stage.
_STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))


class Vgg11(Backbone):
    """Five stages of 3×3 convolutions, each ending with a 2×2 max-pool, mean over the pixels, two linear layers.

    Every ReLU comes after the max-pool: the order does not matter, and ReLU has a quarter of the work there.
    Convolutions start from He's weights and zero biases: with PyTorch's weights, the signal would fade through eight
    layers without normalisation. At 32×32 the mean is over one pixel.
    """

    stages = ("stage1", "stage2", "stage3", "stage4", "stage5")

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.dim = 512
        width, built = channels, []
        for number, widths in enumerate(_STAGES):
            layers: list[nn.Module] = []
            for index, width_out in enumerate(widths):
                if number > 0:
                    layers.append(nn.ReLU(inplace=index > 0))
                layers.append(nn.Conv2d(width, width_out, 3, padding=1))
                width = width_out
            built.append(nn.Sequential(*layers, nn.MaxPool2d(2)))
        self.stage1, self.stage2, self.stage3, self.stage4, self.stage5 = built
        self.relu = nn.ReLU()
        self.linear1 = nn.Linear(width, 512)
        self.linear2 = nn.Linear(512, self.dim)
        he_normal(self, "fan_out")

    def features(self, inputs: Tensor) -> Tensor:
        """Features [batch, 512] of images [batch, channels, height, width]."""
        maps = self.stage3(self.stage2(self.stage1(inputs)))
        pooled = self.relu(self.stage5(self.stage4(maps))).mean((2, 3))
        features: Tensor = self.relu(self.linear2(self.relu(self.linear1(pooled))))
        return features


@models.register()
def vgg11(input_shape: tuple[int, ...]) -> Vgg11:
    """VGG-11 without normalisation for images of 32×32 pixels and up, 512 features."""
    return Vgg11(image_channels("vgg11", input_shape, smallest=32))
