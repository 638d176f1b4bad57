"""EfficientNet-B0 (Tan and Le, ICML 2019), and its variant for small images.

Both are without the paper's dropout and stochastic depth, because a model here draws no random numbers in training.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import models
from fedblade.models._backbone import Backbone
from fedblade.models._layers import conv_norm, he_normal, image_channels

# (expansion, width, repeats, kernel, stride of the first block), one row per stage.
_STAGES = (
    (1, 16, 1, 3, 1),
    (6, 24, 2, 3, 2),
    (6, 40, 2, 5, 2),
    (6, 80, 3, 3, 2),
    (6, 112, 3, 5, 1),
    (6, 192, 4, 5, 2),
    (6, 320, 1, 3, 1),
)
_STEM_WIDTH = 32
_TOP_WIDTH = 1280


class SqueezeExcite(nn.Module):
    """Scales each channel by a number in (0, 1) computed from the means of all channels.

    x · sigmoid(W₂ swish(W₁ mean(x) + b₁) + b₂), with W₁ to `squeezed` channels and W₂ back.
    """

    def __init__(self, width: int, squeezed: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(width, squeezed, 1)
        self.swish = nn.SiLU()
        self.fc2 = nn.Conv2d(squeezed, width, 1)
        self.sigmoid = nn.Sigmoid()

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps [batch, width, …] of the same shape as the input."""
        means = inputs.mean((2, 3), keepdim=True)
        gates: Tensor = self.sigmoid(self.fc2(self.swish(self.fc1(means))))
        return inputs * gates


class MobileBlock(nn.Module):
    """Inverted residual block with swish and squeeze-excite on the widened maps.

    With `small`, for the variant for small images: squeeze to a quarter of the widened width instead of a quarter of
    the input width, an expansion layer even for a factor of 1, and a 1×1 convolution on the shortcut where the width
    changes at stride 1.
    """

    def __init__(self, width_in: int, width_out: int, expansion: int, kernel: int, stride: int, *, small: bool) -> None:
        super().__init__()
        hidden = expansion * width_in
        self.expand = conv_norm(width_in, hidden, kernel=1) if small or expansion > 1 else None
        self.depthwise = conv_norm(hidden, hidden, kernel, stride, groups=hidden)
        self.squeeze_excite = SqueezeExcite(hidden, (hidden if small else width_in) // 4)
        self.project = conv_norm(hidden, width_out, kernel=1)
        self.swish = nn.SiLU()
        self.shortcut: nn.Module | None = None
        if stride == 1 and width_in == width_out:
            self.shortcut = nn.Identity()
        elif stride == 1 and small:
            self.shortcut = conv_norm(width_in, width_out, kernel=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps [batch, width_out, …] of maps [batch, width_in, …]."""
        hidden = inputs if self.expand is None else self.swish(self.expand(inputs))
        outputs: Tensor = self.project(self.squeeze_excite(self.swish(self.depthwise(hidden))))
        return outputs if self.shortcut is None else outputs + self.shortcut(inputs)


class EfficientNet(Backbone):
    """Stem, seven stages, for large images a 1×1 convolution to 1280, mean over the pixels.

    Swish follows the stem and the top convolution, outside these modules; stages end without activation.
    """

    def __init__(self, channels: int, *, small: bool) -> None:
        super().__init__()
        self.stages = ("stem", *(f"stage{number}" for number in range(1, len(_STAGES) + 1)))
        self.stem = conv_norm(channels, _STEM_WIDTH, stride=1 if small else 2)
        width = _STEM_WIDTH
        for number, (expansion, width_out, repeats, kernel, stride) in enumerate(_STAGES, start=1):
            first = MobileBlock(width, width_out, expansion, kernel, stride, small=small)
            rest = (MobileBlock(width_out, width_out, expansion, kernel, 1, small=small) for _ in range(repeats - 1))
            self.add_module(f"stage{number}", nn.Sequential(first, *rest))
            width = width_out
        self.top: nn.Module | None = None
        if not small:
            self.top = conv_norm(width, _TOP_WIDTH, kernel=1)
            self.stages = (*self.stages, "top")
            width = _TOP_WIDTH
        self.swish = nn.SiLU()
        self.dim = width

    def features(self, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of images [batch, channels, height, width]."""
        maps = self.swish(self.stem(inputs))
        for number in range(1, len(_STAGES) + 1):
            maps = getattr(self, f"stage{number}")(maps)
        if self.top is not None:
            maps = self.swish(self.top(maps))
        features: Tensor = maps.mean((2, 3))
        return features


@models.register()
def efficientnet_b0_small(input_shape: tuple[int, ...]) -> EfficientNet:
    """EfficientNet-B0 for small images as in FedETF, 320 features; PyTorch's initial weights.

    Deviation: a block of stride 2 has no shortcut here; in FedETF's code it adds its output to itself and so
    doubles it.
    """
    return EfficientNet(image_channels("efficientnet_b0_small", input_shape), small=True)


@models.register()
def efficientnet_b0(input_shape: tuple[int, ...], weights: str = "") -> EfficientNet:
    """EfficientNet-B0 for large images, 1280 features; He's initial weights, or weights from a file.

    `weights` is the path of a .safetensors file with the names of torchvision's `efficientnet_b0` state dict:
    `features.0.0.weight` (stem) to `features.8.1.running_var` (top). Entries `classifier.…` and
    `….num_batches_tracked` are ignored; any other missing or additional name is an error. To make such a file:
    `safetensors.torch.save_file(torchvision.models.efficientnet_b0(weights="DEFAULT").state_dict(), path)`.
    """
    body = EfficientNet(image_channels("efficientnet_b0", input_shape), small=False)
    he_normal(body, "fan_out")
    if weights:
        _load_weights(body, Path(weights))
    return body


@torch.no_grad()
def _load_weights(body: EfficientNet, path: Path) -> None:
    """Fill the body from a file with torchvision's names."""
    if not path.is_file():
        raise Misconfigured(f"model.weights '{path}' does not exist. Give the path of a .safetensors file.")
    try:
        given = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise Misconfigured(
            f"model.weights '{path}' cannot be read as safetensors: {reason}. "
            f"Write the file with safetensors.torch.save_file(model.state_dict(), path)."
        ) from error
    given = {name: leaf for name, leaf in given.items() if not name.startswith("classifier.")}
    given = {name: leaf for name, leaf in given.items() if not name.endswith(".num_batches_tracked")}
    wanted = {
        torchvision_name(name): leaf
        for name, leaf in body.state_dict().items()
        if not name.endswith(".num_batches_tracked")
    }
    for name in (*wanted, *given):
        if name not in given or name not in wanted:
            fault = f"has no tensor '{name}'" if name in wanted else f"has a tensor '{name}' of another model"
            raise Misconfigured(
                f"model.weights '{path}' {fault}; expected the {len(wanted)} names of torchvision's efficientnet_b0, "
                f"from 'features.0.0.weight' to 'features.8.1.running_var'. Save that model's state_dict()."
            )
        if given[name].shape != wanted[name].shape:
            raise Misconfigured(
                f"model.weights '{path}' has '{name}' of shape {tuple(given[name].shape)}; expected "
                f"{tuple(wanted[name].shape)}. Use weights of efficientnet_b0 for inputs with the same channels."
            )
        wanted[name].copy_(given[name])


def torchvision_name(name: str) -> str:
    """The name in torchvision's `efficientnet_b0` of a tensor of this network."""
    stage, *path = name.split(".")
    if stage == "stem":
        return ".".join(("features", "0", *path))
    if stage == "top":
        return ".".join(("features", str(len(_STAGES) + 1), *path))
    block, part, *rest = path
    parts = ["expand", "depthwise", "squeeze_excite", "project"]
    number = int(stage.removeprefix("stage"))
    position = parts.index(part) - (1 if _STAGES[number - 1][0] == 1 else 0)
    return ".".join(("features", str(number), block, "block", str(position), *rest))
