"""Augmentations as batched tensor code, driven by the plan's draws."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.samples import Augment


@dataclass(frozen=True)
class CropFlip:
    """Pad with black by `padding` on every side, cut the original size at a random place, mirror every other image.

    Draws per image: vertical offset, horizontal offset, mirror.
    """

    padding: int = 4
    num_draws: ClassVar[int] = 3

    def __call__(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """Crop and mirror images [batch, channels, height, width]."""
        height, width = inputs.shape[-2:]
        padded = pad(inputs, [self.padding] * 4)
        offsets = (draws[:, :2] * (2 * self.padding + 1)).long()
        rows = offsets[:, :1] + torch.arange(height, device=inputs.device)
        columns = offsets[:, 1:] + torch.arange(width, device=inputs.device)
        columns = torch.where(draws[:, 2:] < 0.5, columns.flip(1), columns)
        batch = torch.arange(len(inputs), device=inputs.device)[:, None, None]
        return padded.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


AUGMENTS: dict[str, Augment | None] = {"none": None, "crop_flip": CropFlip()}


def find_augment(name: str, input_shape: tuple[int, ...]) -> Augment | None:
    """The augmentation called `name`, or an error if it does not exist or the inputs are not images."""
    if name not in AUGMENTS:
        raise Misconfigured(f"unknown augmentation dataset.augment = '{name}'.{nearest(name, AUGMENTS)}")
    if AUGMENTS[name] is not None and len(input_shape) != 3:
        raise Misconfigured(
            f"dataset.augment = '{name}' works on images (channels, height, width); these inputs have shape "
            f"{input_shape}. Use dataset.augment = 'none'."
        )
    return AUGMENTS[name]
