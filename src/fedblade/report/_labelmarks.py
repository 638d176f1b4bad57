"""The marks of a label map, one per client and class: bubbles, or shades where they are small."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedblade.charts.palette import COLOURS, GRID
from fedblade.report._svg import cell_paths, tag, text, text_width

Table = Sequence[Sequence[float]]

_BUBBLE_CELL = 13.0
_LEVELS = 6
_WIDE_KEY = 400.0
_CELL = COLOURS[0]


@dataclass(frozen=True)
class Frame:
    """The cells in pixels: their origin, the size of a cell, and the numbers of columns and rows."""

    left: float
    top: float
    cell_width: float
    cell_height: float
    columns: int
    rows: int

    @property
    def right(self) -> float:
        """The right edge of the last column."""
        return self.left + self.columns * self.cell_width

    @property
    def bottom(self) -> float:
        """The lower edge of the last row."""
        return self.top + self.rows * self.cell_height

    @property
    def bubbles(self) -> bool:
        """Whether cells are large enough for bubbles."""
        return min(self.cell_width, self.cell_height) >= _BUBBLE_CELL


def marks(columns: Table, frame: Frame) -> str:
    """A mark in each cell that has samples."""
    return _bubbles(columns, frame) if frame.bubbles else _shades(columns, frame)


def key(columns: Table, frame: Frame) -> str:
    """Marks with the counts they stand for."""
    most = max(max(column) for column in columns) or 1.0
    step = 1 if frame.right - frame.left > _WIDE_KEY else 2
    shares = (1 / 16, 1 / 4, 1.0) if frame.bubbles else [(i / _LEVELS) ** 2 for i in range(step, _LEVELS + 1, step)]
    y, x = frame.bottom + 62, frame.left
    parts = [text(x, y, "samples")]
    x += text_width("samples") + 12
    for count in sorted({max(1, round(most * share)) for share in shares}):
        share = min(1.0, count / most)
        half = _radius(share, frame) if frame.bubbles else 8.0
        label = f"{count:,}"
        parts.append(_key_mark(x, y, half, share, frame) + text(x + 2 * half + 5, y, label))
        x += 2 * half + 5 + text_width(label) + 12
    return "".join(parts)


def _bubbles(columns: Table, frame: Frame) -> str:
    """Circles whose area is proportional to the count."""
    most = max(max(column) for column in columns) or 1.0
    circles = "".join(
        tag(
            "circle",
            cx=frame.left + (i + 0.5) * frame.cell_width,
            cy=frame.top + (c + 0.5) * frame.cell_height,
            r=_radius(n / most, frame),
        )
        for i, column in enumerate(columns)
        for c, n in enumerate(column)
        if n
    )
    return tag("g", circles, fill=_CELL, fill_opacity=0.85, class_="cells") if circles else ""


def _radius(share: float, frame: Frame) -> float:
    """Radius for a share of the largest count; neighbours in a row may touch but not overlap."""
    largest = 0.5 * min(frame.cell_width, frame.cell_height * 1.15) - 0.5
    return max(0.8, largest * math.sqrt(share))


def _shades(columns: Table, frame: Frame) -> str:
    """One path per shade, in cells of size 1 that are stretched to their place."""
    most = max(max(column) for column in columns) or 1.0
    levels = [_level(n, most) if n else 0 for row in zip(*columns, strict=True) for n in row]
    edge = tag(
        "rect",
        x=frame.left,
        y=frame.top,
        width=frame.right - frame.left,
        height=frame.bottom - frame.top,
        fill="none",
        stroke=GRID,
        class_="grid",
    )
    shades = "".join(
        tag("path", d=drawn, stroke_opacity=level / _LEVELS)
        for level, drawn in cell_paths(levels, frame.columns).items()
    )
    place = f"translate({frame.left:.2f} {frame.top:.2f}) scale({frame.cell_width:.4f} {frame.cell_height:.4f})"
    return edge + tag("g", shades, class_="shades", stroke=_CELL, shape_rendering="crispEdges", transform=place)


def _level(n: float, most: float) -> int:
    """Shade from 1 to `_LEVELS`; the square root keeps small counts visible."""
    return max(1, math.ceil(_LEVELS * math.sqrt(n / most) - 1e-9))


def _key_mark(x: float, y: float, half: float, share: float, frame: Frame) -> str:
    if frame.bubbles:
        return tag("circle", cx=x + half, cy=y - 4, r=half, fill=_CELL, fill_opacity=0.85, class_="cells")
    opacity = _level(share, 1.0) / _LEVELS
    return tag("rect", x=x, y=y - 11, width=2 * half, height=13, fill=_CELL, fill_opacity=opacity, class_="cells")
