"""Small square heat maps of class against class, of which a script can exchange the values."""

import base64
from typing import Any

from fedblade.charts import ClassMaps
from fedblade.charts.palette import GRID, NEGATIVE, POSITIVE
from fedblade.report._svg import cell_paths, document, shorten, stride, tag, text, text_width, upright_title
from fedblade.results import Vector

_LEVELS = 8
_WIDTH = 250.0
_NAME_ROOM = 64.0
_TOP = 4.0
_UNKNOWN, _FULL = 255, 254


def draw_map(maps: ClassMaps, index: int, label: str) -> str:
    """The map of one group at the last round."""
    side = len(maps.row_names)
    left = 22 + _widest_name(maps) + 6
    cell = (_WIDTH - left - 4) / side
    bottom = _TOP + side * cell
    place = f"translate({left:.2f} 4) scale({cell:.4f})"
    cells = tag("g", draw_cells(maps.shown.values[index][-1] or (), side), class_="heat", transform=place)
    edge = tag("rect", x=left, y=_TOP, width=side * cell, height=side * cell, fill="none", stroke=GRID, class_="grid")
    return document(
        _row_names(maps, left, cell) + _column_names(maps, left, cell, bottom) + cells + edge,
        size=(_WIDTH, bottom + 40),
        title=f"{maps.title}: {label}",
        desc=f"{side} by {side} cells; {maps.down} down, {maps.across} across.",
        name=f"{maps.name}-{index}",
        data_map=f"{left:.2f} 4 {cell:.4f}",
        data_ends=f"{POSITIVE} {NEGATIVE}",
    )


def map_data(maps: ClassMaps, index: int) -> dict[str, Any]:
    """What the page's script needs to name the values under the pointer and to change the round."""
    return {
        "side": len(maps.row_names),
        "names": list(maps.row_names),
        "across": maps.across,
        "down": maps.down,
        "signed": maps.signed,
        "frames": [
            None if values is None else packed(values, signed=maps.signed) for values in maps.shown.values[index]
        ],
    }


def draw_scale(*, signed: bool) -> str:
    """The scale of colours, with the values that they stand for."""
    ends = ("−1", "0", "1") if signed else ("0 %", "50 %", "100 %")
    levels = range(-_LEVELS if signed else 1, _LEVELS + 1)
    width = 12.0
    cells = [
        tag("rect", "", x=20 + at * width, y=2.0, width=width, height=12.0, stroke="none", **_paint(level, "fill"))
        for at, level in enumerate(levels)
        if level
    ]
    span = len(levels) * width
    marks = [text(20 + share * span, 30, end, anchor="middle") for share, end in zip((0, 0.5, 1), ends, strict=True)]
    return tag(
        "svg",
        "".join(cells + marks),
        class_="chart scale",
        width=span + 40,
        height=36,
        viewBox=f"0 0 {span + 40:g} 36",
        font_size=12,
        role="img",
        aria_label=f"Scale from {ends[0]} to {ends[2]}",
    )


def packed(values: Vector, *, signed: bool) -> str:
    """The values as base64 of one byte each: 0 to 254 over the range, 255 for unknown."""
    low, width = (-1.0, 2.0) if signed else (0.0, 1.0)
    shares = (None if v is None else min(1.0, max(0.0, (v - low) / width)) for v in values)
    return base64.b64encode(bytes(_UNKNOWN if s is None else round(s * _FULL) for s in shares)).decode("ascii")


def draw_cells(values: Vector, side: int) -> str:
    """Cells of size 1, one path for every strength; unknown cells stay empty."""
    levels = [0 if value is None else level_of(value) for value in values]
    return "".join(
        tag("path", "", d=drawn, **_paint(level, "stroke")) for level, drawn in cell_paths(levels, side).items()
    )


def level_of(value: float) -> int:
    """Strength of the colour, from -8 to 8."""
    return max(-_LEVELS, min(_LEVELS, int(abs(value) * _LEVELS + 0.5) * (1 if value > 0 else -1)))


def _row_names(maps: ClassMaps, left: float, cell: float) -> str:
    names = maps.row_names
    labels = [
        text(left - 6, _TOP + (i + 0.5) * cell + 4, shorten(names[i], _NAME_ROOM), anchor="end")
        for i in range(0, len(names), stride(len(names), 14 / cell))
    ]
    return "".join(labels) + upright_title(_TOP + len(names) * cell / 2, maps.down)


def _column_names(maps: ClassMaps, left: float, cell: float, bottom: float) -> str:
    names, widest = maps.row_names, _widest_name(maps)
    middles = {i: left + (i + 0.5) * cell for i in range(0, len(names), stride(len(names), (widest + 8) / cell))}
    labels = [
        text(middle, bottom + 16, shorten(names[i], _NAME_ROOM), anchor="middle")
        for i, middle in middles.items()
        if left <= middle - widest / 2 + cell and middle + widest / 2 <= _WIDTH
    ]
    return "".join(labels) + text(left + (bottom - _TOP) / 2, bottom + 34, maps.across, anchor="middle")


def _widest_name(maps: ClassMaps) -> float:
    return min(_NAME_ROOM, max(text_width(name) for name in maps.row_names))


def _paint(level: int, kind: str) -> dict[str, object]:
    side, colour = ("pos", POSITIVE) if level > 0 else ("neg", NEGATIVE)
    return {kind: colour, f"{kind}_opacity": abs(level) / _LEVELS, "class_": f"{side}-{kind}"}
