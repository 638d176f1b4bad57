"""What rules for layers are given, and where they are registered."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Lane:
    """An activation of all clients: split [clients, batch, …], or folded [batch, clients·channels, height, width]."""

    value: Tensor
    folded: bool = False

    def split(self, clients: int) -> Tensor:
        """As [clients, batch, …]."""
        if not self.folded:
            return self.value
        batch, channels = self.value.shape[:2]
        return self.value.reshape(batch, clients, channels // clients, *self.value.shape[2:]).transpose(0, 1)

    def fold(self) -> Tensor:
        """As [batch, clients·channels, …]; maps of two axes have their channels last in memory."""
        if self.folded:
            return self.value
        clients, batch, channels = self.value.shape[:3]
        wide = self.value.transpose(0, 1).reshape(batch, clients * channels, *self.value.shape[3:])
        return wide.contiguous(memory_format=torch.channels_last) if wide.dim() == 4 else wide


@dataclass(frozen=True)
class Shared:
    """What all layers of a pass share: the number of clients, which samples are real, and whether they train.

    `mask` [clients, batch] is 1 for real samples; None means that all are. With `relu` a layer also does the ReLU that
    follows it.
    """

    clients: int
    mask: Tensor | None
    training: bool
    relu: bool = False


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
