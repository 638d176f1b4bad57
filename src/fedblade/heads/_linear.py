"""The linear head with logits W z + b, the same head frozen, and the dual head, which adds a personal classifier."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.registry import heads
from fedblade.core.streams import Stream, Streams
from fedblade.core.tree import Tree
from fedblade.core.views import Head, HeadOutput, HeadTensors
from fedblade.heads._affine import draw_affine
from fedblade.heads._directions import normalise
from fedblade.heads._layers import cosine_layers, linear_layer
from fedblade.heads._simplex import draw_simplex_etf

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

    def layers(self, params: Tree, fixed: Tree) -> list[nn.Module]:  # noqa: ARG002 - nothing is fixed
        """A linear layer, behind a normalisation of the features with `normalize`."""
        weight, bias = params["head.weight"], params["head.bias"] if self.bias else None
        return cosine_layers(weight, bias) if self.normalize else [linear_layer(weight, bias)]

    def _affine(self, params: Tree, vectors: Tensor) -> Tensor:
        return functional.linear(vectors, params["head.weight"], params["head.bias"] if self.bias else None)


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

    def layers(self, params: Tree, fixed: Tree) -> list[nn.Module]:  # noqa: ARG002 - nothing is trained
        """A linear layer without gradients."""
        return [linear_layer(fixed["head.weight"], fixed["head.bias"], trained=False)]


@heads.register("dual_linear", paper="arXiv:2107.00778")
@dataclass(frozen=True)
class DualLinearHead(Head):
    """Logits G(z) of a generic affine head; G(z) + P(z) is the prediction of a client with personal head P (FedRoD).

    G is `head.weight` [classes, dim] and `head.bias` [classes], P the same under `personal_head`.

    Deviation: P is always linear; the paper also makes it from the client's label histogram by a hypernetwork.
    """

    def init(self, dim: int, num_classes: int, streams: Streams) -> HeadTensors:
        """G starts as the linear head, bit for bit, and P as a copy of G."""
        return _doubled(LinearHead().init(dim, num_classes, streams))

    def adopt(self, weight: Tensor, bias: Tensor | None) -> HeadTensors | None:
        """G starts from the given tensors, and P as a copy of G."""
        given = LinearHead().adopt(weight, bias)
        return None if given is None else _doubled(given)

    def __call__(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:  # noqa: ARG002 - nothing is fixed
        """G(z), the prediction of the global model."""
        return HeadOutput(functional.linear(features, params["head.weight"], params["head.bias"]), features)

    def layers(self, params: Tree, fixed: Tree) -> list[nn.Module]:  # noqa: ARG002 - nothing is fixed
        """G as a linear layer."""
        return [linear_layer(params["head.weight"], params["head.bias"])]

    def residual(self, params: Tree, features: Tensor) -> Tensor:
        """P(z) [batch, classes], the addition of the personal head."""
        return functional.linear(features, params["personal_head.weight"], params["personal_head.bias"])

    def personal_logits(self, params: Tree, features: Tensor) -> Tensor:
        """G(z) + P(z) [batch, classes], the prediction of the client."""
        return self(params, {}, features).logits + self.residual(params, features)


def _doubled(generic: HeadTensors) -> HeadTensors:
    """The tensors of G, and a copy of them for P."""
    personal = {f"personal_{name}": leaf.clone() for name, leaf in generic.params.items()}
    return HeadTensors(generic.params | personal, {})
