"""Changes of colour, pixel by pixel, with Pillow's arithmetic on unsigned bytes."""

import torch
from torch import Tensor


def histograms(images: Tensor) -> Tensor:
    """How often each value occurs, [batch, channels, 256]."""
    batch, channels = images.shape[:2]
    rows = torch.arange(batch * channels, device=images.device)[:, None] * 256
    flat = images.reshape(batch * channels, -1).long() + rows
    return torch.bincount(flat.reshape(-1), minlength=batch * channels * 256).reshape(batch, channels, 256)


def look_up(images: Tensor, tables: Tensor) -> Tensor:
    """Replace every value by its entry in the table of its image and channel; `tables` is [batch, channels, 256]."""
    return tables.gather(2, images.flatten(2).long()).reshape(images.shape)


def autocontrast_tables(counts: Tensor) -> Tensor:
    """Stretch each channel so that its darkest value becomes 0 and its brightest 255."""
    values = torch.arange(256, dtype=torch.float64, device=counts.device)
    seen = counts > 0
    low = seen.to(torch.uint8).argmax(2, keepdim=True).double()
    high = 255.0 - seen.flip(2).to(torch.uint8).argmax(2, keepdim=True).double()
    # torch computes number / tensor as number · (1 / tensor), which rounds twice; tensor / tensor rounds once.
    scale = torch.full_like(low, 255.0) / (high - low).clamp(min=1.0)
    stretched = (values * scale - low * scale).trunc().clamp(0, 255)
    return torch.where(high > low, stretched, values).to(torch.uint8)


def equalize_tables(counts: Tensor) -> Tensor:
    """Spread the values of each channel so that all values are about equally frequent."""
    values = torch.arange(256, device=counts.device)
    last = 255 - (counts > 0).flip(2).to(torch.uint8).argmax(2, keepdim=True)
    step = (counts.sum(2, keepdim=True) - counts.gather(2, last)) // 255
    before = counts.cumsum(2) - counts
    spread = ((step // 2 + before) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, spread, values).to(torch.uint8)


def grey(images: Tensor) -> Tensor:
    """Brightness [batch, 1, height, width] by the weights of ITU-R 601, in Pillow's integer form."""
    red, green, blue = images.long().unbind(1)
    return ((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16).to(torch.uint8)[:, None]


def mean_grey(images: Tensor) -> Tensor:
    """Mean brightness [batch, 1, 1, 1], rounded."""
    brightness = grey(images).flatten(1).long()
    return ((2 * brightness.sum(1) + brightness.shape[1]) // (2 * brightness.shape[1])).to(torch.uint8)[
        :, None, None, None
    ]


def smooth(images: Tensor) -> Tensor:
    """Mean of the 3×3 neighbours with weight 5 in the middle; pixels at the border do not change."""
    values = images.int()
    total = 4 * values[:, :, 1:-1, 1:-1]
    height, width = images.shape[-2:]
    for down in range(3):
        for across in range(3):
            total = total + values[:, :, down : height - 2 + down, across : width - 2 + across]
    result = images.clone()
    result[:, :, 1:-1, 1:-1] = ((2 * total + 13) // 26).to(images.dtype)
    return result


def blend(base: Tensor, images: Tensor, factors: Tensor) -> Tensor:
    """Mix base + factor · (images − base) in float32, cut off to whole bytes; `factors` is [batch]."""
    start = base.float()
    mixed = start + factors.float()[:, None, None, None] * (images.float() - start)
    return mixed.clamp(0, 255).to(torch.uint8)
