"""Geometric changes: an affine map takes the centre of every output pixel to a point of the input image.

A matrix [batch, 2, 3] takes output coordinates (x, y, 1) to input coordinates. Pixel centres are at half integers, as
in Pillow. Coordinates are computed in float64.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


def _coordinates(matrices: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Input coordinates x, y [batch, height, width] of all output pixel centres."""
    y = torch.arange(height, dtype=matrices.dtype, device=matrices.device)[:, None] + 0.5
    x = torch.arange(width, dtype=matrices.dtype, device=matrices.device) + 0.5
    first, second = matrices[:, 0, :, None, None], matrices[:, 1, :, None, None]
    return first[:, 0] * x + first[:, 1] * y + first[:, 2], second[:, 0] * x + second[:, 1] * y + second[:, 2]


def _take(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Pixels of images [batch, channels, …] at rows and columns [batch, height, width]."""
    batch, channels, _, width = images.shape
    positions = (rows * width + columns).reshape(batch, 1, -1).expand(-1, channels, -1)
    return images.flatten(2).gather(2, positions).reshape(batch, channels, *rows.shape[1:])


def warp_nearest(images: Tensor, matrices: Tensor, fill: int) -> Tensor:
    """Take the nearest input pixel (Pillow's NEAREST); pixels from outside the image become `fill`."""
    height, width = images.shape[-2:]
    x, y = (axis.floor().long() for axis in _coordinates(matrices, height, width))
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    taken = _take(images, y.clamp(0, height - 1), x.clamp(0, width - 1))
    return taken.masked_fill(~inside[:, None], fill)


def warp_bilinear(images: Tensor, matrices: Tensor, size: int) -> Tensor:
    """Images of `size` × `size` pixels, as float32, from four neighbours; beyond the border the image is reflected."""
    height, width = images.shape[-2:]
    x, y = (axis - 0.5 for axis in _coordinates(matrices, size, size))
    left, top = x.floor(), y.floor()
    across, down = ((x - left)[:, None].float(), (y - top)[:, None].float())
    rows = [_reflect(top.long() + step, height) for step in (0, 1)]
    columns = [_reflect(left.long() + step, width) for step in (0, 1)]
    upper, lower = (
        torch.lerp(_take(images, row, columns[0]).float(), _take(images, row, columns[1]).float(), across)
        for row in rows
    )
    return torch.lerp(upper, lower, down)


def _reflect(index: Tensor, size: int) -> Tensor:
    """Indices mirrored at the first and the last pixel, without repeating that pixel."""
    period = max(1, 2 * (size - 1))
    folded = index.remainder(period)
    return torch.minimum(folded, period - folded)


def rotation(angles: Tensor, centre_x: float, centre_y: float) -> Tensor:
    """Matrices [batch, 2, 3] that turn images counter-clockwise by `angles` [batch] in degrees around a point."""
    radians = angles.double() * (math.pi / 180.0)
    cosine, sine = radians.cos(), radians.sin()
    shift_x = centre_x - cosine * centre_x + sine * centre_y
    shift_y = centre_y - sine * centre_x - cosine * centre_y
    first, second = torch.stack([cosine, -sine, shift_x], 1), torch.stack([sine, cosine, shift_y], 1)
    return torch.stack([first, second], 1)


@dataclass(frozen=True)
class Rotate:
    """Turn each image by an angle from ±`degrees` around its centre, nearest pixel, black outside.

    Draws per image: angle.
    """

    degrees: float
    num_draws: ClassVar[int] = 1

    def __call__(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """Turn images [batch, channels, height, width]."""
        height, width = inputs.shape[-2:]
        angles = (2 * draws[:, 0].double() - 1) * self.degrees
        return warp_nearest(inputs, rotation(angles, width / 2, height / 2), fill=0)
