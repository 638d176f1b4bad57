"""The projected ETF head: cosines between a linear projection of the features and fixed class vectors."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import heads
from fedblade.core.streams import Stream, Streams
from fedblade.core.tree import Tree
from fedblade.core.views import Head, HeadOutput, HeadTensors
from fedblade.heads._affine import draw_affine
from fedblade.heads._directions import normalise
from fedblade.heads._etf import draw_simplex_etf
from fedblade.heads._scale import Scale


@heads.register("etf_projector", paper="arXiv:2303.10058, Eq. 4 and 5")
@dataclass(frozen=True)
class EtfProjectorHead(Head):
    """Logits s·Vᵀu with u = û/‖û‖ and û = A z + a: a trained projector before a fixed simplex ETF (FedETF, Eq. 5).

    `proj_dim` "auto" takes as many dimensions as classes. Without `projector` (an ablation) V has the width of the
    features and u = z/‖z‖. Without `bias` a = 0 and û = A z.

    Deviation: after each step s is raised to `scale.min` if it is below, and such steps are counted; "none" is the
    paper's rule.
    """

    proj_dim: int | Literal["auto"] = "auto"
    projector: bool = True
    bias: bool = True
    scale: Scale = field(default_factory=Scale)

    def __post_init__(self) -> None:
        if self.proj_dim != "auto" and not self.projector:
            raise Misconfigured(
                f"proj_dim={self.proj_dim} needs the projector. Set projector=true or leave proj_dim='auto'."
            )

    def init(self, dim: int, num_classes: int, streams: Streams) -> HeadTensors:
        """Projector with `torch.nn.Linear`'s distribution, initial scale, class vectors from the stream `etf`."""
        space = (num_classes if self.proj_dim == "auto" else self.proj_dim) if self.projector else dim
        etf = draw_simplex_etf(space, num_classes, streams.numpy(Stream.ETF)).to(torch.float32)
        params: Tree = {}
        if self.projector:
            weight, bias = draw_affine(dim, space, streams.torch(Stream.INIT, 1))
            params |= {"projector.weight": weight} | ({"projector.bias": bias} if self.bias else {})
        trained, fixed = self.scale.tensors()
        return HeadTensors(params | trained, {"etf": etf} | fixed)

    def __call__(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:
        """Scaled cosines, and the projection before normalisation."""
        projected = self.project(params, features)
        scale = self.scale.value(params, fixed)
        return HeadOutput(scale * (normalise(projected) @ fixed["etf"]), projected)

    def project(self, params: Tree, features: Tensor) -> Tensor:
        """A z + a, or z without a projector."""
        if not self.projector:
            return features
        return functional.linear(features, params["projector.weight"], params["projector.bias"] if self.bias else None)

    def raw_logits(self, params: Tree, fixed: Tree, output: HeadOutput) -> Tensor:  # noqa: ARG002
        """Products Vᵀû of the class vectors with the projection before normalisation."""
        return output.projected @ fixed["etf"]

    def constrain(self, params: Tree) -> dict[str, Tensor]:
        """Clamp the scale to its lower bound in place and say whether it was below."""
        return self.scale.constrain(params)
