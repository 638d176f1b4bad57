"""A conditional generator of features that the server trains against the clients' classifiers."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedblade.core.errors import Misconfigured
from fedblade.core.method import InitView
from fedblade.core.streams import Stream
from fedblade.core.tree import Tree

STATISTICS = ("norm.running_mean", "norm.running_var")
_SMALLEST = 2.0**-54
"""Half the smallest positive draw. It replaces a draw of 0, which has no normal quantile."""


@dataclass(frozen=True)
class FeatureGenerator:
    """G(y, ε): one-hot(y) ⊕ ε → linear(hid) → BatchNorm → ReLU → linear(dim), with tensors passed in (FedGen).

    ε has `nz` numbers, uniform in [0, 1) or standard normal; both are computed from uniform draws.
    """

    nz: int = 64
    hid: int = 512
    noise: Literal["uniform", "normal"] = "uniform"

    def __post_init__(self) -> None:
        for name in ("nz", "hid"):
            if not getattr(self, name) >= 1:
                raise Misconfigured(f"{name}={getattr(self, name)!r}: expected 1 or more.")

    def init(self, view: InitView) -> Tree:
        """Weights as PyTorch draws them, from the stream `generator`, and the statistics of the normalisation."""
        like, inputs = next(iter(view.params.values())), view.num_classes + self.nz
        generator = view.streams.torch(Stream.GENERATOR)

        def draw(outputs: int, inputs: int, *shape: int) -> Tensor:
            bound = inputs**-0.5
            return torch.empty(outputs, *shape, dtype=torch.float32).uniform_(-bound, bound, generator=generator)

        tensors = {
            "in.weight": draw(self.hid, inputs, inputs),
            "in.bias": draw(self.hid, inputs),
            "norm.weight": torch.ones(self.hid),
            "norm.bias": torch.zeros(self.hid),
            "norm.running_mean": torch.zeros(self.hid),
            "norm.running_var": torch.ones(self.hid),
            "out.weight": draw(view.dim, self.hid, self.hid),
            "out.bias": draw(view.dim, self.hid),
        }
        return {name: leaf.to(like) for name, leaf in tensors.items()}

    def codes(self, draws: Tensor) -> Tensor:
        """ε from uniform `draws [batch, nz]`."""
        return torch.special.ndtri(draws.clamp(min=_SMALLEST)) if self.noise == "normal" else draws

    def __call__(self, tensors: Tree, labels: Tensor, draws: Tensor) -> Tensor:
        """Features [batch, dim] from `labels [batch]` and uniform `draws [batch, nz]`, normalised as in evaluation."""
        codes = self.codes(draws).to(tensors["in.weight"])
        mean, variance = (tensors[name] for name in STATISTICS)
        hidden = _join(tensors, labels, codes)
        hidden = (hidden - mean) / (variance + 1e-5).sqrt() * tensors["norm.weight"] + tensors["norm.bias"]
        return functional.linear(hidden.relu(), tensors["out.weight"], tensors["out.bias"])

    def in_training(self, tensors: Tree, labels: Tensor, codes: Tensor) -> tuple[Tensor, Tree]:
        """Features normalised with the batch of at least two labels, and the updated statistics."""
        statistics = {name: tensors[name].clone() for name in STATISTICS}
        hidden = functional.batch_norm(
            _join(tensors, labels, codes),
            statistics["norm.running_mean"],
            statistics["norm.running_var"],
            tensors["norm.weight"],
            tensors["norm.bias"],
            training=True,
        )
        return functional.linear(hidden.relu(), tensors["out.weight"], tensors["out.bias"]), statistics


def _join(tensors: Tree, labels: Tensor, codes: Tensor) -> Tensor:
    """The first layer's output for one-hot labels and codes."""
    num_classes = tensors["in.weight"].shape[1] - codes.shape[1]
    one_hot = (labels[:, None] == torch.arange(num_classes, device=labels.device)).to(codes)
    return functional.linear(torch.cat([one_hot, codes], 1), tensors["in.weight"], tensors["in.bias"])
