"""The augmentation that FLamby uses on Fed-ISIC2019, as one warp of the stored picture."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedblade.data._augment import cover
from fedblade.data._warp import warp_bilinear

_MAX_HOLES = 8


@dataclass(frozen=True)
class LesionAugment:
    """Scale ±7 %, rotate ±50°, brightness ±15 % and contrast ±10 %, flip, shear ±0.1°, crop, up to 8 black squares.

    Every step except the crop happens with probability one half. The geometric steps are composed into one matrix and
    the image is sampled once (bilinear, reflected at the border), where FLamby samples after every step. A flip is
    horizontal, vertical or both. The number of squares is drawn per image, where FLamby draws it once per process.
    Draws per image, in order: scale (on, value), rotation (on, value), tones (on, brightness, contrast), flip (on,
    kind), shear (on, x, y), crop (row, column), squares (on, number), eight rows, eight columns.
    """

    size: int = 200
    hole: int = 16
    num_draws: ClassVar[int] = 16 + 2 * _MAX_HOLES

    def __call__(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """Change colour images [batch, channels, side, side] and cut them to `size`."""
        warped = warp_bilinear(inputs, self.matrices(draws, inputs.shape[-1]), self.size)
        toned = draws[:, 4] < 0.5
        contrast = torch.where(toned, 1.0 + 0.1 * _signed(draws[:, 6]), 1.0).float()[:, None, None, None]
        brightness = torch.where(toned, 0.15 * 255.0 * _signed(draws[:, 5]), 0.0).float()[:, None, None, None]
        images = (warped * contrast + brightness + 0.5).floor().clamp(0, 255).to(inputs.dtype)
        return self._drop(images, draws)

    def matrices(self, draws: Tensor, side: int) -> Tensor:
        """From output coordinates to stored ones: undo crop, shear, flip, rotation and scale in turn."""
        draws = draws.double()
        scale = torch.where(draws[:, 0] < 0.5, 1.0 + 0.07 * _signed(draws[:, 1]), 1.0)
        angle = torch.where(draws[:, 2] < 0.5, 50.0 * _signed(draws[:, 3]), 0.0) * (math.pi / 180.0)
        kind = torch.where(draws[:, 7] < 0.5, (draws[:, 8] * 3).floor(), -1.0)
        flip_x = torch.where((kind == 0) | (kind == 2), -1.0, 1.0).double()
        flip_y = torch.where((kind == 1) | (kind == 2), -1.0, 1.0).double()
        limits = torch.where(draws[:, 9:10] < 0.5, _signed(draws[:, 10:12]), 0.0) * (0.1 * math.pi / 180.0)
        shear_x, shear_y = limits.tan().unbind(1)
        ones = torch.ones_like(scale)
        shear = _matrix(ones, shear_x, shear_y, ones)
        flip = _matrix(flip_x, 0 * ones, 0 * ones, flip_y)
        turn = _matrix(angle.cos(), -angle.sin(), angle.sin(), angle.cos())
        linear = (turn @ flip @ shear) / scale[:, None, None]
        scaled = (side * scale).floor()
        offsets = (draws[:, [13, 12]] * (scaled - self.size + 1)[:, None]).floor()
        centred = offsets - scaled[:, None] / 2
        return torch.cat([linear, linear @ centred[:, :, None] + side / 2], dim=2)

    def _drop(self, images: Tensor, draws: Tensor) -> Tensor:
        number = torch.where(draws[:, 14] < 0.5, (draws[:, 15] * _MAX_HOLES).floor() + 1, 0)[:, None]
        room = self.size - self.hole
        for hole in range(_MAX_HOLES):
            top = (draws[:, 16 + hole, None] * room).long()
            left = (draws[:, 16 + _MAX_HOLES + hole, None] * room).long()
            outside = torch.full_like(top, self.size)
            images = cover(images, torch.where(hole < number, top, outside), left, self.hole, (0,))
        return images


def _signed(draws: Tensor) -> Tensor:
    return 2.0 * draws - 1.0


def _matrix(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return torch.stack([torch.stack([a, b], 1), torch.stack([c, d], 1)], 1)
