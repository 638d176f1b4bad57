"""Layers between the body and the head that a method or a model setting asks for."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn


@dataclass(frozen=True)
class Neck:
    """Layers behind the body, which become part of it: a linear layer to `width`, after a hidden layer if asked.

    `hidden` is the width of a hidden layer with ReLU, as a multiple of the body's width; None means no hidden layer.
    With `norm` "batch" a BatchNorm comes last.
    """

    width: int
    hidden: float | None = None
    norm: Literal["none", "batch"] = "none"


class Wrapper(nn.Module):
    """A module of this library around a module of the user's; messages use the name of the user's class."""

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
    """Names of the submodules whose outputs can be tapped, from the body's attribute `stages`; none without it."""
    named = getattr(body, "stages", ())
    return tuple(named) if isinstance(named, tuple | list) and all(isinstance(name, str) for name in named) else ()
