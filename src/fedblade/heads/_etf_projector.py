"""The projected ETF head: cosines between a linear projection of the features and fixed class vectors."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import heads
from fedblade.core.streams import Streams
from fedblade.core.tree import Tree
from fedblade.core.views import Head, HeadOutput, HeadTensors
from fedblade.heads._affine import draw_affine
from fedblade.heads._directions import normalise
from fedblade.heads._etf import draw_simplex_etf


@dataclass(frozen=True)
class Scale:
    """The factor s of the cosines: where it starts, whether it learns, and its lower bound after each step."""

    init: float = 1.0
    learnable: bool = True
    min: float | Literal["none"] = 1e-3

    def __post_init__(self) -> None:
        if not self.init > 0:
            raise Misconfigured(f"scale.init={self.init} must be positive: it multiplies the cosines.")
        if self.min != "none" and not 0 <= self.min <= self.init:
            raise Misconfigured(
                f"scale.min={self.min!r} must lie between 0 and scale.init={self.init}, or be 'none' for no bound."
            )


@heads.register("etf_projector", paper="arXiv:2303.10058, Eq. 4 and 5")
@dataclass(frozen=True)
class EtfProjectorHead(Head):
    """Logits s·Vᵀu with u = û/‖û‖ and û = A z + a: a trained projector before a fixed simplex ETF (FedETF, Eq. 5).

    `proj_dim` "auto" takes as many dimensions as classes. Without `projector` (an ablation) V has the width of the
    features and u = z/‖z‖.

    Deviation: s is kept above `scale.min` after each step and the clamps are counted; "none" is the paper's rule.
    """

    proj_dim: int | Literal["auto"] = "auto"
    projector: bool = True
    scale: Scale = field(default_factory=Scale)

    def __post_init__(self) -> None:
        if self.proj_dim != "auto" and not self.projector:
            raise Misconfigured(
                f"proj_dim={self.proj_dim} needs the projector. Set projector=true or leave proj_dim='auto'."
            )

    def init(self, dim: int, num_classes: int, streams: Streams) -> HeadTensors:
        """Projector as `torch.nn.Linear` starts, scale at its initial value, class vectors from the stream `etf`."""
        space = (num_classes if self.proj_dim == "auto" else self.proj_dim) if self.projector else dim
        etf = draw_simplex_etf(space, num_classes, streams.numpy("etf")).to(torch.float32)
        params: Tree = {}
        if self.projector:
            weight, bias = draw_affine(dim, space, streams.torch("init", 1))
            params |= {"projector.weight": weight, "projector.bias": bias}
        scale = {"scale": torch.tensor(self.scale.init, dtype=torch.float32)}
        if self.scale.learnable:
            return HeadTensors(params | scale, {"etf": etf})
        return HeadTensors(params, {"etf": etf} | scale)

    def __call__(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:
        """Scaled cosines, and the projection before normalisation."""
        projected = self.project(params, features)
        scale = params["scale"] if self.scale.learnable else fixed["scale"]
        return HeadOutput(scale * (normalise(projected) @ fixed["etf"]), projected)

    def project(self, params: Tree, features: Tensor) -> Tensor:
        """A z + a, or z itself without a projector."""
        if not self.projector:
            return features
        return functional.linear(features, params["projector.weight"], params["projector.bias"])

    def raw_logits(self, params: Tree, fixed: Tree, output: HeadOutput) -> Tensor:  # noqa: ARG002
        """Products Vᵀû of the class vectors with the projection before normalisation."""
        return output.projected @ fixed["etf"]

    def constrain(self, params: Tree) -> dict[str, Tensor]:
        """Clamp the scale to its lower bound in place and say whether it was below."""
        bound = self.scale.min
        if not self.scale.learnable or bound == "none":
            return {}
        scale = params["scale"].detach()
        below = (scale < bound).to(scale.dtype)
        scale.clamp_(min=bound)
        return {"count_scale_clamped": below}
