"""A data set as tensors on the training device, and the batches that loops and passes read."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Augment(Protocol):
    """Random changes of stored inputs, made from the plan's uniform draws: equal draws give equal inputs."""

    @property
    def num_draws(self) -> int:
        """Uniform numbers needed per sample."""

    def __call__(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """Change `inputs [batch, …]` by `draws [batch, num_draws]` in [0, 1)."""


class Reader(Protocol):
    """Inputs that the host reads anew at each use, because reading is random: equal draws give equal inputs."""

    @property
    def num_draws(self) -> int:
        """Uniform numbers needed per sample."""

    def __call__(self, indices: Tensor, draws: Tensor) -> Tensor:
        """Inputs [batch, …] in their stored type, on the CPU, at `indices` by `draws [batch, num_draws]` in [0, 1)."""


@dataclass(frozen=True)
class Samples:
    """Inputs and labels on a device. Inputs stay in their stored type; a batch is augmented, then normalised.

    `shift` and `scale` broadcast over one input: a batch is (inputs - shift) * scale in `dtype`. A `margin` of pixels
    on every side is for the augmentation only; without draws it is cut off. If there is a `reader`, it reads batches
    with draws on the host. `inputs` are then for batches without draws: evaluation and passes without augmentation.
    """

    inputs: Tensor
    labels: Tensor
    dtype: torch.dtype
    shift: Tensor
    scale: Tensor
    augment: Augment | None = None
    margin: int = 0
    reader: Reader | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_draws(self) -> int:
        """Uniform numbers that reader and augmentation need per sample."""
        return sum(part.num_draws for part in (self.reader, self.augment) if part is not None)

    def batch(self, indices: Tensor, draws: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Inputs and labels at `indices`, read anew and augmented if draws are given."""
        if self.reader is not None and draws is not None:
            inputs = self.reader(indices, draws[:, : self.reader.num_draws]).to(self.inputs.device)
            draws = draws[:, self.reader.num_draws :]
        else:
            inputs = self.inputs[indices]
        if self.augment is not None and draws is not None:
            inputs = self.augment(inputs, draws)
        elif self.margin:
            inside = slice(self.margin, -self.margin)
            inputs = inputs[..., inside, inside]
        return (inputs.to(self.dtype) - self.shift) * self.scale, self.labels[indices]
