"""A multi-layer perceptron for inputs of any shape."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

from fedblade.core.registry import models
from fedblade.models._backbone import Backbone
from fedblade.models._layers import require_positive


class Mlp(Backbone):
    """Linear layers with ReLU, optionally with BatchNorm before each ReLU."""

    stages = ("layers",)

    def __init__(self, input_shape: tuple[int, ...], hidden: Sequence[int], dim: int, norm: str) -> None:
        super().__init__()
        self.dim = dim
        widths = [math.prod(input_shape), *hidden, dim]
        layers: list[nn.Module] = []
        for width_in, width_out in pairwise(widths):
            layers.append(nn.Linear(width_in, width_out))
            if norm == "batch":
                layers.append(nn.BatchNorm1d(width_out))
            layers.append(nn.ReLU())
        self.layers = nn.Sequential(*layers)

    def features(self, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of inputs [batch, …]."""
        features: Tensor = self.layers(inputs.flatten(1))
        return features


@models.register()
def mlp(
    input_shape: tuple[int, ...],
    hidden: Sequence[int] = (128,),
    dim: int = 64,
    norm: Literal["none", "batch"] = "none",
) -> Mlp:
    """Linear layers with ReLU, for inputs of any shape."""
    require_positive("mlp", dim=dim, hidden=min(hidden, default=1))
    return Mlp(input_shape, hidden, dim, norm)
