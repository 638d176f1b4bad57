"""What rules for layers are given, and where they are registered."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from torch import Tensor, nn


@dataclass(frozen=True)
class Running:
    """Running statistics [clients·channels] and batch counters [clients], which change in place, and their momentum."""

    mean: Tensor
    var: Tensor
    batches: Tensor
    momentum: float


@dataclass(frozen=True)
class Norm:
    """A batch normalisation (and ReLU) that the next layer does; `facts` of the channels if they are known."""

    weight: Tensor
    bias: Tensor
    running: Running | None
    eps: float
    relu: bool
    facts: Tensor | None = None


@dataclass(frozen=True)
class Lane:
    """An activation of all clients: split [clients, batch, …], or folded [batch, clients·channels, height, width].

    With `norm` it is what a normalisation was given and the layer that reads it normalises first.
    """

    value: Tensor
    folded: bool = False
    norm: Norm | None = None

    def split(self, clients: int) -> Tensor:
        """As [clients, batch, …]."""
        if not self.folded:
            return self.value
        # By way of the order in memory, so that the gradient comes back in that order too.
        rows = self.value.movedim(1, -1)
        rows = rows.view(*rows.shape[:-1], clients, rows.shape[-1] // clients)
        places = rows.dim() - 3
        return rows.permute(places + 1, 0, places + 2, *range(1, places + 1))

    def fold(self) -> Tensor:
        """As [batch, clients·channels, …]; maps of two axes have their channels last in memory."""
        if self.folded:
            return self.value
        if self.value.dim() != 5:
            return self.value.transpose(0, 1).flatten(1, 2)
        return self.value.permute(1, 3, 4, 0, 2).flatten(3).contiguous().permute(0, 3, 1, 2)

    def flat(self, clients: int) -> Tensor:
        """As [clients, batch, numbers], the numbers of a sample in the order of its axes."""
        return self.split(clients).flatten(2)


@dataclass(frozen=True)
class Shared:
    """What all layers of a pass share: the number of clients, which samples are real, and whether they train.

    `mask` [clients, batch] is 1 for real samples; None means that all are. On a GPU real ones come first and `sizes`
    [clients] counts them. With `relu` a layer also does the ReLU that follows it; with `defer` a normalisation leaves
    its work to the layer that follows.
    """

    clients: int
    mask: Tensor | None
    training: bool
    relu: bool = False
    sizes: Tensor | None = None
    defer: bool = False


Rule: TypeAlias = Callable[[nn.Module, Mapping[str, Tensor], Lane, Shared], Lane]
RULES: dict[type[nn.Module], Rule] = {}
"""Rules by the exact type of the module."""

R = TypeVar("R", bound=Rule)


def rule(*kinds: type[nn.Module]) -> Callable[[R], R]:
    """Decorator that registers a rule: module, its tensors [clients, …] by name, input, what the pass shares."""

    def add(function: R) -> R:
        RULES.update(dict.fromkeys(kinds, function))
        return function

    return add
