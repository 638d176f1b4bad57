"""Heads with orthonormal class vectors: fixed, or prototypes that the server moves."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import heads
from fedblade.core.streams import Stream, Streams
from fedblade.core.tree import Tree
from fedblade.core.views import Head, HeadOutput, HeadTensors
from fedblade.heads._directions import normalise
from fedblade.heads._layers import cosine_layers
from fedblade.heads._scale import Scale
from fedblade.heads._simplex import orthonormal_columns


def draw_orthonormal(num_rows: int, num_columns: int, generator: np.random.Generator) -> Tensor:
    """Matrix [num_rows, num_columns] in float64 with orthonormal rows, or columns if there are fewer columns.

    Every orientation has equal chance.
    """
    tall = orthonormal_columns(generator.standard_normal((max(num_rows, num_columns), min(num_rows, num_columns))))
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

    def layers(self, params: Tree, fixed: Tree) -> list[nn.Module]:  # noqa: ARG002 - nothing is trained
        """A normalisation of the features, and a linear layer without gradients."""
        return cosine_layers(fixed["head.weight"], trained=False)


@heads.register("proto_head", paper="arXiv:2212.02758")
@dataclass(frozen=True)
class PrototypeHead(Head):
    """Logits s·P z/‖z‖ with one prototype per class, a unit row of P, and a scale s (FedNH).

    P is `head.weight` [classes, dim]. It travels with the model, because the server moves it; a method with this head
    does not train the group `head`.

    Deviations: the authors' code orthogonalises a uniform draw; here a normal draw gives every orientation equal
    chance. After each step s is raised to `scale.min` if it is below, and such steps are counted; "none" is no bound.
    """

    scale: Scale = field(default_factory=Scale)

    def init(self, dim: int, num_classes: int, streams: Streams) -> HeadTensors:
        """Orthonormal rows from the stream `prototypes`.

        With more classes than dimensions, the columns are orthonormal, and then the rows are normalised.
        """
        rows = normalise(draw_orthonormal(num_classes, dim, streams.numpy(Stream.PROTOTYPES)))
        trained, fixed = self.scale.tensors()
        return HeadTensors({"head.weight": rows.to(torch.float32).contiguous()} | trained, fixed)

    def __call__(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:
        """Scaled cosines with the prototypes."""
        cosines = normalise(features) @ params["head.weight"].mT
        return HeadOutput(self.scale.value(params, fixed) * cosines, features)

    def raw_logits(self, params: Tree, fixed: Tree, output: HeadOutput) -> Tensor:  # noqa: ARG002 - none is fixed
        """Products P z with the features, which are not normalised."""
        return output.projected @ params["head.weight"].mT

    def layers(self, params: Tree, fixed: Tree) -> list[nn.Module]:
        """A normalisation of the features, and the prototypes times the scale as a linear layer."""
        return cosine_layers(self.scale.value(params, fixed) * params["head.weight"])

    def constrain(self, params: Tree) -> dict[str, Tensor]:
        """Clamp the scale to its lower bound in place and say whether it was below."""
        return self.scale.constrain(params)
