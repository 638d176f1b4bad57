"""Layers between extractor and head that a method or a model setting asks for."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn


@dataclass(frozen=True)
class Neck:
    """Layers behind the extractor, which become part of it: linear to `width`, after a hidden layer with ReLU if asked.

    `hidden` is the width of that layer as a multiple of the extractor's; `norm` "batch" ends with a BatchNorm.
    """

    width: int
    hidden: float | None = None
    norm: Literal["none", "batch"] = "none"


class WithNeck(nn.Module):
    """A body followed by the layers of a neck."""

    def __init__(self, body: nn.Module, dim: int, neck: Neck) -> None:
        super().__init__()
        self.body = body
        self.stages = tuple(f"body.{name}" for name in stages_of(body))
        hidden = None if neck.hidden is None else max(1, round(neck.hidden * dim))
        layers: list[nn.Module] = [] if hidden is None else [nn.Linear(dim, hidden), nn.ReLU()]
        layers.append(nn.Linear(dim if hidden is None else hidden, neck.width))
        if neck.norm == "batch":
            layers.append(nn.BatchNorm1d(neck.width))
        self.neck = layers[0] if len(layers) == 1 else nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        """Features [batch, width]."""
        features: Tensor = self.neck(self.body(inputs))
        return features


def stages_of(body: nn.Module) -> tuple[str, ...]:
    """Names of the submodules that a body offers to be tapped; none if it does not say."""
    named = getattr(body, "stages", ())
    return tuple(named) if isinstance(named, tuple | list) and all(isinstance(each, str) for each in named) else ()
