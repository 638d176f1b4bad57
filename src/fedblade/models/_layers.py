"""Shared parts of backbones: checks of inputs and knobs, convolution with BatchNorm, and He's initial weights."""

from typing import Literal

from torch import nn

from fedblade.core.errors import Misconfigured


def image_channels(model: str, input_shape: tuple[int, ...], smallest: int = 1) -> int:
    """Number of channels of images (channels, height, width); inputs of another shape are refused."""
    if len(input_shape) != 3 or min(input_shape) < 1 or min(input_shape[1:]) < smallest:
        raise Misconfigured(
            f"model '{model}' got inputs of shape {tuple(input_shape)}; expected images (channels, height, width) "
            f"of at least {smallest}×{smallest} pixels. Use model=mlp for other inputs."
        )
    return input_shape[0]


def require_positive(model: str, **counts: int) -> None:
    """Refuse counts below 1."""
    for knob, given in counts.items():
        if given < 1:
            raise Misconfigured(f"model '{model}' has {knob} = {given}; expected a whole number of at least 1.")


def conv_norm(width_in: int, width_out: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution without bias, padded so that stride 1 keeps the size, and BatchNorm. No activation."""
    return nn.Sequential(
        nn.Conv2d(width_in, width_out, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(width_out),
    )


def he_normal(body: nn.Module, fan: Literal["fan_in", "fan_out"]) -> None:
    """Draw every convolution from N(0, 2/fan) and set its bias to 0 (He et al., ICCV 2015)."""
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode=fan, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
