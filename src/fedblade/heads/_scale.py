"""The factor of heads whose logits are cosines."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.tree import Tree


@dataclass(frozen=True)
class Scale:
    """The factor s of the cosines: its initial value, whether it is trained, and its lower bound after each step."""

    init: float = 1.0
    learnable: bool = True
    min: float | Literal["none"] = 1e-3

    def __post_init__(self) -> None:
        if not self.init > 0:
            raise Misconfigured(f"scale.init={self.init} must be positive: it multiplies the cosines.")
        if self.min != "none" and not 0 <= self.min <= self.init:
            raise Misconfigured(
                f"scale.min={self.min!r} must lie between 0 and scale.init={self.init}, or be 'none' for no bound."
            )

    def tensors(self) -> tuple[Tree, Tree]:
        """The tensor `scale` among the head's parameters or among its fixed tensors; the other tree is empty."""
        scale = {"scale": torch.tensor(self.init, dtype=torch.float32)}
        return (scale, {}) if self.learnable else ({}, scale)

    def value(self, params: Tree, fixed: Tree) -> Tensor:
        """The current scale."""
        return params["scale"] if self.learnable else fixed["scale"]

    def constrain(self, params: Tree) -> dict[str, Tensor]:
        """Clamp the scale to its lower bound in place and say whether it was below."""
        if not self.learnable or self.min == "none":
            return {}
        scale = params["scale"].detach()
        below = (scale < self.min).to(scale.dtype)
        scale.clamp_(min=self.min)
        return {"count_scale_clamped": below}
