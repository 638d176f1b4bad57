"""RandomResizedCrop: crop a box of random area and shape and resize it."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

_ATTEMPTS = 10


@dataclass(frozen=True)
class ResizedCrop:
    """Crop a box of random area and ratio of sides, resize it to `size`, mirror half of the images.

    Boxes are drawn as usual: up to ten tries of an area share from `scale` and a ratio from `ratio` (uniform in its
    logarithm). If no try fits into the image, the largest central box of an allowed ratio is taken. Resizing uses
    Pillow's bilinear filter (a triangle, widened when shrinking), width first, rounded after each axis. Draws per
    image: ten shares, ten ratios, vertical and horizontal position, mirror.
    """

    size: int
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    num_draws: ClassVar[int] = 2 * _ATTEMPTS + 3

    def __call__(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """Crop, resize and mirror images [batch, channels, height, width]."""
        height, width = inputs.shape[-2:]
        tops, lefts, heights, widths = self.boxes(draws, height, width)
        across = _weights(lefts, widths, width, self.size).to(inputs.device)
        down = _weights(tops, heights, height, self.size).to(inputs.device)
        narrowed = _round(inputs.float() @ across.transpose(1, 2)[:, None])
        resized = _round(down[:, None] @ narrowed).to(inputs.dtype)
        return torch.where(draws[:, -1, None, None, None] < 0.5, resized.flip(-1), resized)

    def boxes(self, draws: Tensor, height: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Top, left, height and width [batch] of each box, in pixels."""
        share = self.scale[0] + (self.scale[1] - self.scale[0]) * draws[:, :_ATTEMPTS].double()
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        ratio = (low + (high - low) * draws[:, _ATTEMPTS : 2 * _ATTEMPTS].double()).exp()
        area = share * (height * width)
        widths, heights = (area * ratio).sqrt().round().long(), (area / ratio).sqrt().round().long()
        fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
        first = fits.to(torch.uint8).argmax(1, keepdim=True)
        has_fit = fits.any(1)
        central_height, central_width = self._central(height, width)
        chosen_height = torch.where(has_fit, heights.gather(1, first)[:, 0], central_height)
        chosen_width = torch.where(has_fit, widths.gather(1, first)[:, 0], central_width)
        position = draws[:, 2 * _ATTEMPTS : 2 * _ATTEMPTS + 2].double()
        tops = torch.where(
            has_fit, (position[:, 0] * (height - chosen_height + 1)).long(), (height - chosen_height) // 2
        )
        lefts = torch.where(has_fit, (position[:, 1] * (width - chosen_width + 1)).long(), (width - chosen_width) // 2)
        return tops, lefts, chosen_height, chosen_width

    def _central(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the central box."""
        if width / height < self.ratio[0]:
            return round(width / self.ratio[0]), width
        if width / height > self.ratio[1]:
            return height, round(height * self.ratio[1])
        return height, width


def _weights(starts: Tensor, lengths: Tensor, side: int, size: int) -> Tensor:
    """Weights [batch, size, side] of the input pixels in each output pixel, along one axis."""
    scale = lengths.double()[:, None, None] / size
    reach = scale.clamp(min=1.0)
    centres = (torch.arange(size, dtype=torch.float64, device=starts.device)[:, None] + 0.5) * scale
    positions = torch.arange(side, device=starts.device) - starts[:, None, None]
    inside = (positions >= 0) & (positions < lengths[:, None, None])
    weights = (1.0 - ((positions + 0.5 - centres) / reach).abs()).clamp(min=0.0) * inside
    return (weights / weights.sum(2, keepdim=True)).float()


def _round(values: Tensor) -> Tensor:
    return (values + 0.5).floor().clamp(0, 255)
