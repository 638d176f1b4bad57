"""Initial tensors of an affine map, with the distribution of `torch.nn.Linear`, drawn from a given generator."""

import math

import torch
from torch import Tensor


def draw_affine(inputs: int, outputs: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Weight [outputs, inputs] and bias [outputs] in float32, uniform in ±1/sqrt(inputs)."""
    bound = 1 / math.sqrt(inputs)
    weight = torch.empty(outputs, inputs, dtype=torch.float32).uniform_(-bound, bound, generator=generator)
    return weight, torch.empty(outputs, dtype=torch.float32).uniform_(-bound, bound, generator=generator)
