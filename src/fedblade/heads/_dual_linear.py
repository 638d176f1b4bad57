"""The dual linear head: a generic classifier for all clients and a personal classifier that is added to it."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from fedblade.core.registry import heads
from fedblade.core.streams import Streams
from fedblade.core.tree import Tree
from fedblade.core.views import Head, HeadOutput, HeadTensors
from fedblade.heads._linear import LinearHead


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
