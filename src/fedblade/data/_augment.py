"""Augmentations as batched tensor code, driven by the plan's draws: crops, mirror images, cutout, and chains."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedblade.core.samples import Augment


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
