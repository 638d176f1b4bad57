"""The arguments of rules for layers, and the registry of rules."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from torch import Tensor, nn


@dataclass(frozen=True)
class Running:
    """Running statistics [clients·channels] and batch counters [clients], changed in place, and their momentum."""

    mean: Tensor
    var: Tensor
    batches: Tensor
    momentum: float


@dataclass(frozen=True)
class Norm:
    """A batch normalisation, with or without a ReLU, that the next layer computes.

    `facts` are statistics of the channels, if they are known; `_norm_kernels.py` defines them.
    """

    weight: Tensor
    bias: Tensor
    running: Running | None
    eps: float
    relu: bool
    facts: Tensor | None = None


@dataclass(frozen=True)
class Activation:
    """An activation of all clients: split [clients, batch, …], or folded [batch, clients·channels, height, width].

    With `norm` the value is the input of a normalisation, and the layer that reads the value normalises it first.
    """

    value: Tensor
    folded: bool = False
    norm: Norm | None = None

    def split(self, clients: int) -> Tensor:
        """As [clients, batch, …]."""
        if not self.folded:
            return self.value
        # With channels last, as in memory, so that the gradient has the same order in memory.
        channels_last = self.value.movedim(1, -1)
        by_client = channels_last.view(*channels_last.shape[:-1], clients, channels_last.shape[-1] // clients)
        num_axes = by_client.dim() - 3
        return by_client.permute(num_axes + 1, 0, num_axes + 2, *range(1, num_axes + 1))

    def fold(self) -> Tensor:
        """As [batch, clients·channels, …]; maps with height and width have their channels last in memory."""
        if self.folded:
            return self.value
        if self.value.dim() != 5:
            return self.value.transpose(0, 1).flatten(1, 2)
        return self.value.permute(1, 3, 4, 0, 2).flatten(3).contiguous().permute(0, 3, 1, 2)

    def flat(self, clients: int) -> Tensor:
        """As [clients, batch, numbers], with the numbers of a sample in the order of its axes."""
        return self.split(clients).flatten(2)


@dataclass(frozen=True)
class Shared:
    """What all layers of a pass share: the number of clients, which samples are real, and whether they train.

    `mask` [clients, batch] is 1 for real samples; None means that all are. On a GPU the real samples come first and
    `sizes` [clients] counts them. With `relu` a layer also computes the ReLU that follows it; with `defer` a
    normalisation leaves its work to the layer that follows.
    """

    clients: int
    mask: Tensor | None
    training: bool
    relu: bool = False
    sizes: Tensor | None = None
    defer: bool = False


Rule: TypeAlias = Callable[[nn.Module, Mapping[str, Tensor], Activation, Shared], Activation]
RULES: dict[type[nn.Module], Rule] = {}
"""Rules by the exact type of the module."""

R = TypeVar("R", bound=Rule)


def rule(*kinds: type[nn.Module]) -> Callable[[R], R]:
    """Decorator that registers a rule for types of modules.

    A rule takes the module, its tensors [clients, …] by name, the input, and what all layers of the pass share.
    """

    def add(function: R) -> R:
        RULES.update(dict.fromkeys(kinds, function))
        return function

    return add
