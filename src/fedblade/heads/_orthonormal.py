"""The orthonormal head: cosines between the features and fixed class vectors that are orthogonal to each other."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import heads
from fedblade.core.streams import Stream, Streams
from fedblade.core.tree import Tree
from fedblade.core.views import Head, HeadOutput, HeadTensors
from fedblade.heads._directions import normalise
from fedblade.heads._etf import _orthonormal


def draw_orthonormal(num_rows: int, num_columns: int, generator: np.random.Generator) -> Tensor:
    """Matrix [num_rows, num_columns] in float64 with orthonormal rows, or columns if there are fewer columns.

    Every orientation has equal chance.
    """
    tall = _orthonormal(generator.standard_normal((max(num_rows, num_columns), min(num_rows, num_columns))))
    return torch.from_numpy(tall if num_rows > num_columns else tall.T)


@heads.register("ortho_frozen", paper="arXiv:2207.09413")
@dataclass(frozen=True)
class OrthonormalHead(Head):
    """Logits W z/‖z‖ with W Wᵀ = I, drawn once and never trained, without bias (SphereFed).

    `head.weight` [classes, dim] is a fixed tensor; there cannot be more classes than dimensions.
    """

    def init(self, dim: int, num_classes: int, streams: Streams) -> HeadTensors:
        """Orthonormal rows from the stream `ortho`."""
        if num_classes > dim:
            raise Misconfigured(
                f"{num_classes} orthonormal class vectors need at least {num_classes} dimensions, {dim} given. "
                f"Widen the features, for example with a neck, or choose another head."
            )
        weight = draw_orthonormal(num_classes, dim, streams.numpy(Stream.ORTHONORMAL))
        return HeadTensors({}, {"head.weight": weight.to(torch.float32).contiguous()})

    def __call__(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:  # noqa: ARG002 - nothing is trained
        """Cosines with the class vectors."""
        return HeadOutput(normalise(features) @ fixed["head.weight"].T, features)

    def raw_logits(self, params: Tree, fixed: Tree, output: HeadOutput) -> Tensor:  # noqa: ARG002
        """Products W z with the features, which are not normalised."""
        return output.projected @ fixed["head.weight"].T
