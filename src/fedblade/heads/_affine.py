"""Initial tensors of an affine map, as `torch.nn.Linear` draws them but from a stream of ours."""

import math

import torch
from torch import Tensor


def draw_affine(inputs: int, outputs: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Weight [outputs, inputs] and bias [outputs], uniform in ±1/sqrt(inputs)."""
    bound = 1 / math.sqrt(inputs)
    weight = torch.empty(outputs, inputs).uniform_(-bound, bound, generator=generator)
    return weight, torch.empty(outputs).uniform_(-bound, bound, generator=generator)
