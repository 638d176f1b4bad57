"""The prototype head: scaled cosines between the features and prototypes that the server moves."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedblade.core.registry import heads
from fedblade.core.streams import Stream, Streams
from fedblade.core.tree import Tree
from fedblade.core.views import Head, HeadOutput, HeadTensors
from fedblade.heads._directions import normalise
from fedblade.heads._orthonormal import draw_orthonormal
from fedblade.heads._scale import Scale


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

    def constrain(self, params: Tree) -> dict[str, Tensor]:
        """Clamp the scale to its lower bound in place and say whether it was below."""
        return self.scale.constrain(params)
