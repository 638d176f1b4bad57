"""The linear head: logits W z + b."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.registry import heads
from fedblade.core.streams import Stream, Streams
from fedblade.core.tree import Tree
from fedblade.core.views import Head, HeadOutput, HeadTensors
from fedblade.heads._affine import draw_affine
from fedblade.heads._directions import normalise
from fedblade.heads._etf import draw_simplex_etf

Start = Literal["uniform", "etf"]


@heads.register("linear")
@dataclass(frozen=True)
class LinearHead(Head):
    """Trainable affine classifier: `head.weight` [classes, dim] and `head.bias` [classes].

    `start` "etf" begins with the vectors of a simplex ETF and a bias of 0. With `normalize` the logits are
    W z/‖z‖ + b, and the raw logits W z + b.
    """

    bias: bool = True
    start: Start = "uniform"
    normalize: bool = False

    def __post_init__(self) -> None:
        if self.start not in get_args(Start):
            raise Misconfigured(f"unknown head.start {self.start!r}.{nearest(self.start, get_args(Start))}")

    def init(self, dim: int, num_classes: int, streams: Streams) -> HeadTensors:
        """PyTorch's default initial distribution, from the stream `init`, or an ETF from the stream `etf`."""
        if self.start == "etf":
            etf = draw_simplex_etf(dim, num_classes, streams.numpy(Stream.ETF))
            weight, bias = etf.T.to(torch.float32).contiguous(), torch.zeros(num_classes, dtype=torch.float32)
        else:
            weight, bias = draw_affine(dim, num_classes, streams.torch(Stream.INIT, 1))
        return HeadTensors({"head.weight": weight} | ({"head.bias": bias} if self.bias else {}), {})

    def adopt(self, weight: Tensor, bias: Tensor | None) -> HeadTensors | None:
        """The given W and b; None if the head starts as an ETF, normalises features or has no bias for a given one."""
        if self.start != "uniform" or self.normalize or (bias is not None and not self.bias):
            return None
        shift = weight.new_zeros(len(weight)) if bias is None else bias
        return HeadTensors({"head.weight": weight} | ({"head.bias": shift} if self.bias else {}), {})

    def __call__(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:  # noqa: ARG002 - nothing is fixed
        """W z + b; the class vectors are compared with the features."""
        return HeadOutput(self._affine(params, normalise(features) if self.normalize else features), features)

    def raw_logits(self, params: Tree, fixed: Tree, output: HeadOutput) -> Tensor:  # noqa: ARG002 - nothing is fixed
        """W z + b of features that are not normalised."""
        return self._affine(params, output.projected) if self.normalize else output.logits

    def _affine(self, params: Tree, vectors: Tensor) -> Tensor:
        return functional.linear(vectors, params["head.weight"], params["head.bias"] if self.bias else None)
