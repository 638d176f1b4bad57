"""The linear head: logits W z + b."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from fedblade.core.registry import heads
from fedblade.core.streams import Streams
from fedblade.core.tree import Tree
from fedblade.core.views import Head, HeadOutput, HeadTensors
from fedblade.heads._affine import draw_affine


@heads.register("linear")
@dataclass(frozen=True)
class LinearHead(Head):
    """Trainable affine classifier: `head.weight` [classes, dim] and `head.bias` [classes]."""

    def init(self, dim: int, num_classes: int, streams: Streams) -> HeadTensors:
        """PyTorch's default initial distribution, from the stream `init`."""
        weight, bias = draw_affine(dim, num_classes, streams.torch("init", 1))
        return HeadTensors({"head.weight": weight, "head.bias": bias}, {})

    def __call__(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:  # noqa: ARG002 - nothing is fixed
        """W z + b; the features themselves are what the class vectors are compared with."""
        return HeadOutput(functional.linear(features, params["head.weight"], params["head.bias"]), features)
