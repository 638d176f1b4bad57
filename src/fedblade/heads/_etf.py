"""The heads whose class vectors are a fixed simplex equiangular tight frame."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import heads
from fedblade.core.streams import Stream, Streams
from fedblade.core.tree import Tree, tree_select
from fedblade.core.views import Head, HeadOutput, HeadTensors
from fedblade.heads._affine import draw_affine
from fedblade.heads._directions import normalise
from fedblade.heads._layers import cosine_layers, linear_layer
from fedblade.heads._scale import Scale
from fedblade.heads._simplex import MOST_DRAWN, class_products, class_vectors, draw_signs, draw_simplex_etf


@heads.register("etf_direct", paper="arXiv:2405.18972, arXiv:2406.02355")
@dataclass(frozen=True)
class EtfDirectHead(Head):
    """Logits length·Vᵀh with a fixed simplex ETF V as wide as the features (FedGELA, Dot-Regression, FedDr+).

    h is z, or z/‖z‖ with `normalize`; `length` is the length of the class vectors, sqrt(E_W) in FedGELA.
    """

    normalize: bool = False
    length: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.length < float("inf"):
            raise Misconfigured(
                f"length={self.length} must be positive and finite: it is the length of the class vectors."
            )

    def init(self, dim: int, num_classes: int, streams: Streams) -> HeadTensors:
        """Class vectors [dim, classes] from the stream `etf`; nothing is trained."""
        return HeadTensors({}, {"etf": draw_simplex_etf(dim, num_classes, streams.numpy(Stream.ETF)).to(torch.float32)})

    def __call__(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:  # noqa: ARG002 - nothing is trained
        """Products with class vectors of the given length."""
        vectors = normalise(features) if self.normalize else features
        return HeadOutput(self.length * (vectors @ fixed["etf"]), features)

    def raw_logits(self, params: Tree, fixed: Tree, output: HeadOutput) -> Tensor:  # noqa: ARG002
        """Products Vᵀz of unit class vectors with the features, which are not normalised."""
        return output.projected @ fixed["etf"]

    def layers(self, params: Tree, fixed: Tree) -> list[nn.Module]:  # noqa: ARG002 - nothing is trained
        """A linear layer without gradients, behind a normalisation of the features with `normalize`."""
        vectors = self.length * fixed["etf"].T
        return cosine_layers(vectors, trained=False) if self.normalize else [linear_layer(vectors, trained=False)]


@heads.register("etf_projector", paper="arXiv:2303.10058, Eq. 4 and 5")
@dataclass(frozen=True)
class EtfProjectorHead(Head):
    """Logits s·Vᵀu with u = û/‖û‖ and û = A z + a: a trained projector before a fixed simplex ETF (FedETF, Eq. 5).

    `proj_dim` "auto" takes as many dimensions as classes. Without `projector` (an ablation) V has the width of the
    features and u = z/‖z‖. Without `bias` a = 0 and û = A z.

    Deviations: after each step s is raised to `scale.min` if it is below, and such steps are counted; "none" is the
    paper's rule. With "auto" and more than 1,000 classes V lies along the axes with random signs σ,
    V = sqrt(C/(C - 1))·diag(σ)·(I - 11ᵀ/C), and the fixed tensor `etf` has σ [classes] instead of V, so that the cost
    of a step grows with the classes and not with their square. A rotation of V is a rotation of A and a, whose random
    start has no preferred direction, so that training is not affected.
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
        along_axes = self.projector and self.proj_dim == "auto" and num_classes > MOST_DRAWN
        generator = streams.numpy(Stream.ETF)
        etf = draw_signs(num_classes, generator) if along_axes else draw_simplex_etf(space, num_classes, generator)
        params: Tree = {}
        if self.projector:
            weight, bias = draw_affine(dim, space, streams.torch(Stream.INIT, 1))
            params |= {"projector.weight": weight} | ({"projector.bias": bias} if self.bias else {})
        trained, fixed = self.scale.tensors()
        return HeadTensors(params | trained, {"etf": etf.to(torch.float32)} | fixed)

    def __call__(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:
        """Scaled cosines, and the projection before normalisation."""
        projected = self.project(params, features)
        scale = self.scale.value(params, fixed)
        return HeadOutput(scale * class_products(normalise(projected), fixed["etf"]), projected)

    def project(self, params: Tree, features: Tensor) -> Tensor:
        """A z + a, or z without a projector."""
        if not self.projector:
            return features
        return functional.linear(features, params["projector.weight"], params["projector.bias"] if self.bias else None)

    def raw_logits(self, params: Tree, fixed: Tree, output: HeadOutput) -> Tensor:  # noqa: ARG002
        """Products Vᵀû of the class vectors with the projection before normalisation."""
        return class_products(output.projected, fixed["etf"])

    def layers(self, params: Tree, fixed: Tree) -> list[nn.Module]:
        """The projector, a normalisation, and the class vectors times the scale, which have no gradients."""
        bias = params["projector.bias"] if self.projector and self.bias else None
        projector = [linear_layer(params["projector.weight"], bias)] if self.projector else []
        vectors = self.scale.value(params, fixed) * class_vectors(fixed["etf"]).T
        return [*projector, *cosine_layers(vectors, trained=False)]

    def free(self, fixed: Tree, names: Collection[str]) -> Tree:
        """The fixed tensors of these names; `etf` as class vectors, because a phase trains their entries."""
        freed = tree_select(fixed, names)
        return freed | ({"etf": class_vectors(freed["etf"])} if "etf" in freed else {})

    def constrain(self, params: Tree) -> dict[str, Tensor]:
        """Clamp the scale to its lower bound in place and say whether it was below."""
        return self.scale.constrain(params)
