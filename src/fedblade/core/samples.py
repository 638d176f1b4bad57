"""A data set as tensors on the training device, and the batches that loops and passes read."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Augment(Protocol):
    """Random changes of stored inputs, driven by uniform draws that the plan makes: equal draws, equal images."""

    @property
    def num_draws(self) -> int:
        """Uniform numbers needed per sample."""

    def __call__(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """Change `inputs [batch, …]` by `draws [batch, num_draws]` in [0, 1)."""


@dataclass(frozen=True)
class Samples:
    """Inputs and labels on a device. Inputs stay in their stored type; a batch is augmented, then normalised.

    `shift` and `scale` broadcast over one input: a batch is (inputs - shift) * scale in `dtype`. A `margin` of pixels
    on every side is for the augmentation alone; without draws it is cut off.
    """

    inputs: Tensor
    labels: Tensor
    dtype: torch.dtype
    shift: Tensor
    scale: Tensor
    augment: Augment | None = None
    margin: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_draws(self) -> int:
        """Uniform numbers the augmentation needs per sample."""
        return self.augment.num_draws if self.augment else 0

    def batch(self, indices: Tensor, draws: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Inputs and labels at `indices`, augmented if draws are given."""
        inputs = self.inputs[indices]
        if self.augment is not None and draws is not None:
            inputs = self.augment(inputs, draws)
        elif self.margin:
            inside = slice(self.margin, -self.margin)
            inputs = inputs[..., inside, inside]
        return (inputs.to(self.dtype) - self.shift) * self.scale, self.labels[indices]
