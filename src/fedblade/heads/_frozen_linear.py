"""The frozen linear head: logits W z + b with the initial W and b."""

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
    """Affine classifier with the initial weights of the linear head, which are not trained (FedBABU).

    `head.weight` [classes, dim] and `head.bias` [classes] are fixed tensors, with the names of the linear head.
    """

    def init(self, dim: int, num_classes: int, streams: Streams) -> HeadTensors:
        """The linear head's initial tensors, bit for bit."""
        return HeadTensors({}, LinearHead().init(dim, num_classes, streams).params)

    def adopt(self, weight: Tensor, bias: Tensor | None) -> HeadTensors | None:
        """The given W and b, as fixed tensors."""
        given = LinearHead().adopt(weight, bias)
        return None if given is None else HeadTensors({}, given.params)

    def __call__(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:  # noqa: ARG002 - nothing is trained
        """W z + b."""
        return HeadOutput(functional.linear(features, fixed["head.weight"], fixed["head.bias"]), features)
