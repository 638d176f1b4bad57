"""MobileNet for small images (Howard et al., 2017): depthwise-separable convolutions, no stride in the stem."""

from torch import Tensor, nn

from fedblade.core.registry import models
from fedblade.models._backbone import Backbone
from fedblade.models._layers import conv_norm, image_channels

# Widths of the blocks at each resolution; from the second stage on, the first block of a stage halves the image.
_STAGES = ((64,), (128, 128), (256, 256), (512,) * 6, (1024, 1024))


def _separable(width_in: int, width_out: int, stride: int) -> nn.Sequential:
    """Activate the input, filter each channel (3×3), mix channels (1×1); the output is not yet activated."""
    return nn.Sequential(
        nn.ReLU(),
        conv_norm(width_in, width_in, stride=stride, groups=width_in),
        nn.ReLU(inplace=True),
        conv_norm(width_in, width_out, kernel=1),
    )


class MobileNetV1(Backbone):
    """Stem, five resolution stages of depthwise-separable blocks, mean over the pixels."""

    stages = ("stem", "stage1", "stage2", "stage3", "stage4", "stage5")

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.dim = 1024
        self.stem = conv_norm(channels, 32)
        width, built = 32, []
        for number, widths in enumerate(_STAGES):
            blocks = []
            for index, width_out in enumerate(widths):
                blocks.append(_separable(width, width_out, stride=2 if number > 0 and index == 0 else 1))
                width = width_out
            built.append(nn.Sequential(*blocks))
        self.stage1, self.stage2, self.stage3, self.stage4, self.stage5 = built
        self.relu = nn.ReLU()

    def features(self, inputs: Tensor) -> Tensor:
        """Features [batch, 1024] of images [batch, channels, height, width]."""
        maps = self.stage2(self.stage1(self.stem(inputs)))
        maps = self.stage5(self.stage4(self.stage3(maps)))
        features: Tensor = self.relu(maps).mean((2, 3))
        return features


@models.register()
def mobilenet_v1(input_shape: tuple[int, ...]) -> MobileNetV1:
    """MobileNet (version 1) for small images, 1024 features."""
    return MobileNetV1(image_channels("mobilenet_v1", input_shape))
