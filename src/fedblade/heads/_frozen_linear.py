"""The frozen linear head: logits W z + b with W and b as they were drawn."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from fedblade.core.registry import heads
from fedblade.core.streams import Streams
from fedblade.core.tree import Tree
from fedblade.core.views import Head, HeadOutput, HeadTensors
from fedblade.heads._linear import LinearHead


@heads.register("linear_frozen", paper="arXiv:2106.06042")
@dataclass(frozen=True)
class FrozenLinearHead(Head):
    """Affine classifier that stays where the linear head starts (FedBABU).

    `head.weight` [classes, dim] and `head.bias` [classes] are fixed tensors under the names the linear head trains.
    """

    def init(self, dim: int, num_classes: int, streams: Streams) -> HeadTensors:
        """The linear head's initial tensors, bit for bit."""
        return HeadTensors({}, LinearHead().init(dim, num_classes, streams).params)

    def adopt(self, weight: Tensor, bias: Tensor | None) -> HeadTensors | None:
        """W and b as they are given, to stay so."""
        given = LinearHead().adopt(weight, bias)
        return None if given is None else HeadTensors({}, given.params)

    def __call__(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:  # noqa: ARG002 - nothing is trained
        """W z + b."""
        return HeadOutput(functional.linear(features, fixed["head.weight"], fixed["head.bias"]), features)
