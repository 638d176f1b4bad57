"""Layers between extractor and head that a method or a model setting asks for."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Neck:
    """Layers behind the extractor, which become part of it: linear to `width`, after a hidden layer with ReLU if asked.

    `hidden` is the width of that layer as a multiple of the extractor's; `norm` "batch" ends with a BatchNorm.
    """

    width: int
    hidden: float | None = None
    norm: Literal["none", "batch"] = "none"
