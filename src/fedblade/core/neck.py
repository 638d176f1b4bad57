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


class Wrapper(nn.Module):
    """A module of this library around one of the user's, whose class is the name that messages use."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.class_name = class_name(inner)


class WithNeck(Wrapper):
    """A body followed by the layers of a neck."""

    def __init__(self, body: nn.Module, dim: int, neck: Neck) -> None:
        super().__init__(body)
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


def class_name(body: nn.Module) -> str:
    """The name of a body's class as its author knows it."""
    return body.class_name if isinstance(body, Wrapper) else type(body).__name__


def stages_of(body: nn.Module) -> tuple[str, ...]:
    """Names of the submodules that a body offers to be tapped; none if it does not say."""
    named = getattr(body, "stages", ())
    return tuple(named) if isinstance(named, tuple | list) and all(isinstance(each, str) for each in named) else ()
