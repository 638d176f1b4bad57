"""MobileNetV2 for small images (Sandler et al., CVPR 2018): no stride in the stem and the first stages.

As in the federated literature, it differs from the paper: ReLU instead of ReLU6, a 1×1 convolution on the shortcut
where the width changes at stride 1, and an expansion layer even for an expansion of 1.
"""

from torch import Tensor, nn

from fedblade.core.registry import models
from fedblade.models._backbone import Backbone
from fedblade.models._layers import conv_norm, image_channels

# (expansion, width, repeats, stride of the first block), one tuple of rows per resolution.
_STAGES = (
    ((1, 16, 1, 1), (6, 24, 2, 1)),
    ((6, 32, 3, 2),),
    ((6, 64, 4, 2), (6, 96, 3, 1)),
    ((6, 160, 3, 2), (6, 320, 1, 1)),
)


class InvertedResidual(nn.Module):
    """Widen (1×1), filter each channel (3×3), narrow (1×1, no activation); at stride 1 the input is added."""

    def __init__(self, width_in: int, width_out: int, expansion: int, stride: int) -> None:
        super().__init__()
        hidden = expansion * width_in
        self.expand = conv_norm(width_in, hidden, kernel=1)
        self.depthwise = conv_norm(hidden, hidden, stride=stride, groups=hidden)
        self.project = conv_norm(hidden, width_out, kernel=1)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module | None = None
        if stride == 1:
            self.shortcut = nn.Identity() if width_in == width_out else conv_norm(width_in, width_out, kernel=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps [batch, width_out, …] of maps [batch, width_in, …]."""
        hidden = self.relu(self.depthwise(self.relu(self.expand(inputs))))
        outputs: Tensor = self.project(hidden)
        return outputs if self.shortcut is None else outputs + self.shortcut(inputs)


class MobileNetV2(Backbone):
    """Stem, four resolution stages, mean over the pixels. The last stage ends with the 1×1 convolution to 1280."""

    stages = ("stem", "stage1", "stage2", "stage3", "stage4")

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.dim = 1280
        self.stem = conv_norm(channels, 32)
        width, built = 32, []
        for rows in _STAGES:
            blocks: list[nn.Module] = []
            for expansion, width_out, repeats, first_stride in rows:
                for index in range(repeats):
                    blocks.append(InvertedResidual(width, width_out, expansion, first_stride if index == 0 else 1))
                    width = width_out
            built.append(blocks)
        built[-1].append(conv_norm(width, self.dim, kernel=1))
        self.stage1, self.stage2, self.stage3, self.stage4 = (nn.Sequential(*blocks) for blocks in built)
        self.relu = nn.ReLU()

    def features(self, inputs: Tensor) -> Tensor:
        """Features [batch, 1280] of images [batch, channels, height, width]."""
        maps = self.stage1(self.relu(self.stem(inputs)))
        maps = self.stage4(self.stage3(self.stage2(maps)))
        features: Tensor = self.relu(maps).mean((2, 3))
        return features


@models.register()
def mobilenet_v2(input_shape: tuple[int, ...]) -> MobileNetV2:
    """MobileNetV2 for small images, 1280 features."""
    return MobileNetV2(image_channels("mobilenet_v2", input_shape))
