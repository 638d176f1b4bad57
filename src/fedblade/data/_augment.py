"""Augmentations as batched tensor code, driven by the plan's draws: crops, mirror images, cutout, and chains."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedblade.core.samples import Augment

_ATTEMPTS = 10
"""Boxes that `ResizedCrop` draws before it takes the central one."""


@dataclass(frozen=True)
class CropFlip:
    """Pad with black by `padding` on every side, crop `size` pixels at a random position, mirror half of the images.

    Without a `size`, images keep their size. Draws per image: vertical offset, horizontal offset, mirror.
    """

    padding: int = 4
    size: int | None = None
    num_draws: ClassVar[int] = 3

    def __call__(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """Crop and mirror images [batch, channels, height, width]."""
        padded = pad(inputs, [self.padding] * 4)
        height, width = (self.size, self.size) if self.size else inputs.shape[-2:]
        tops = (draws[:, :1] * (padded.shape[-2] - height + 1)).long()
        lefts = (draws[:, 1:2] * (padded.shape[-1] - width + 1)).long()
        rows = tops + torch.arange(height, device=inputs.device)
        columns = lefts + torch.arange(width, device=inputs.device)
        columns = torch.where(draws[:, 2:] < 0.5, columns.flip(1), columns)
        batch = torch.arange(len(inputs), device=inputs.device)[:, None, None]
        return padded.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Flip:
    """Mirror an image with probability one half. Draws per image: mirror."""

    num_draws: ClassVar[int] = 1

    def __call__(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """Mirror images [batch, channels, height, width]."""
        return torch.where(draws[:, :, None, None] < 0.5, inputs.flip(-1), inputs)


@dataclass(frozen=True)
class Cutout:
    """Cover a square of `size` pixels around a random pixel with `fill` (DeVries and Taylor, 2017).

    The square ends at the border. The paper covers normalised images with 0, which is the mean before normalisation:
    give the mean as `fill`. Draws per image: row and column of the centre.
    """

    size: int = 16
    fill: tuple[int, ...] = (0,)
    num_draws: ClassVar[int] = 2

    def __call__(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """Cover squares of images [batch, channels, height, width]."""
        height, width = inputs.shape[-2:]
        tops, lefts = (draws[:, :1] * height).long(), (draws[:, 1:] * width).long()
        return cover(inputs, tops - self.size // 2, lefts - self.size // 2, self.size, self.fill)


def cover(inputs: Tensor, tops: Tensor, lefts: Tensor, size: int, fill: tuple[int, ...]) -> Tensor:
    """Fill squares whose upper left corners are at rows `tops [batch, 1]` and columns `lefts [batch, 1]`."""
    rows = torch.arange(inputs.shape[-2], device=inputs.device) - tops
    columns = torch.arange(inputs.shape[-1], device=inputs.device) - lefts
    hidden = ((rows >= 0) & (rows < size))[:, None, :, None] & ((columns >= 0) & (columns < size))[:, None, None, :]
    return torch.where(hidden, torch.tensor(fill, dtype=inputs.dtype, device=inputs.device)[:, None, None], inputs)


@dataclass(frozen=True)
class Chain:
    """Several augmentations one after the other; every step uses draws of its own."""

    steps: tuple[Augment, ...]

    @property
    def num_draws(self) -> int:
        """Draws of all steps together."""
        return sum(step.num_draws for step in self.steps)

    def __call__(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """Apply every step."""
        start = 0
        for step in self.steps:
            inputs = step(inputs, draws[:, start : start + step.num_draws])
            start += step.num_draws
        return inputs


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
        across = _resize_weights(lefts, widths, width, self.size).to(inputs.device)
        down = _resize_weights(tops, heights, height, self.size).to(inputs.device)
        narrowed = _to_bytes(inputs.float() @ across.transpose(1, 2)[:, None])
        resized = _to_bytes(down[:, None] @ narrowed).to(inputs.dtype)
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


def _resize_weights(starts: Tensor, lengths: Tensor, side: int, size: int) -> Tensor:
    """Weights [batch, size, side] of the input pixels in each output pixel, along one axis."""
    scale = lengths.double()[:, None, None] / size
    reach = scale.clamp(min=1.0)
    centres = (torch.arange(size, dtype=torch.float64, device=starts.device)[:, None] + 0.5) * scale
    positions = torch.arange(side, device=starts.device) - starts[:, None, None]
    inside = (positions >= 0) & (positions < lengths[:, None, None])
    weights = (1.0 - ((positions + 0.5 - centres) / reach).abs()).clamp(min=0.0) * inside
    return (weights / weights.sum(2, keepdim=True)).float()


def _to_bytes(values: Tensor) -> Tensor:
    return (values + 0.5).floor().clamp(0, 255)
