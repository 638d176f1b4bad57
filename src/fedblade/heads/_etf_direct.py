"""The direct ETF head: products of the features with fixed class vectors."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import heads
from fedblade.core.streams import Stream, Streams
from fedblade.core.tree import Tree
from fedblade.core.views import Head, HeadOutput, HeadTensors
from fedblade.heads._directions import normalise
from fedblade.heads._etf import draw_simplex_etf


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
