"""Label maps: how many samples of each class each client holds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedblade.report._svg import (
    COLOURS,
    GRID,
    MUTED,
    document,
    shorten,
    stride,
    tag,
    text,
    text_width,
    upright_title,
)

Table = Sequence[Sequence[float]]

_MIN_CELL = 2.0
_BUBBLE_CELL = 13.0
_LEVELS = 6
_BARS = 40
_WIDE_KEY = 400.0
_NAME_ROOM = 110.0
_CELL = COLOURS[0]


@dataclass(frozen=True)
class _Frame:
    """Where the cells are: origin, size of a cell, and how many there are."""

    left: float
    top: float
    cell_width: float
    cell_height: float
    columns: int
    rows: int

    @property
    def right(self) -> float:
        return self.left + self.columns * self.cell_width

    @property
    def bottom(self) -> float:
        return self.top + self.rows * self.cell_height

    @property
    def bubbles(self) -> bool:
        return min(self.cell_width, self.cell_height) >= _BUBBLE_CELL


def draw_label_map(
    counts: Table,
    *,
    class_names: Sequence[str] | None,
    title: str | None,
    width: float,
    name: str,
    alone: bool,
) -> str:
    """Clients across, classes down, samples as bubbles or shades, and a bar per client for its total."""
    clients, classes = len(counts), len(counts[0])
    names = [str(n) for n in class_names] if class_names else [str(c) for c in range(classes)]
    left = 24 + min(_NAME_ROOM, max(text_width(n) for n in names)) + 8
    columns, per_column = bin_clients(counts, int((width - left - 12) / _MIN_CELL))
    heading = text(left, 16, shorten(title, width - left), strong=True) if title else ""
    top = (36 if title else 16) + _BARS + 14
    height = min(24.0, max(_MIN_CELL, 440 / classes))
    frame = _Frame(left, top, (width - left - 12) / len(columns), height, len(columns), classes)
    body = heading + _bars(columns, frame) + _rows(names, frame) + _columns(frame, per_column)
    body += _bubbles(columns, frame) if frame.bubbles else _shades(columns, frame)
    body += _key(columns, frame)
    desc = (
        f"{clients} clients across, {classes} classes down; the mark in a cell grows with the number of samples, "
        "an empty cell means none. Bars above show the samples each client holds."
    )
    size = (width, math.ceil(frame.bottom + 74))
    return document(body, size=size, title=title or "Label map", desc=desc, name=name, alone=alone)


def bin_clients(counts: Table, room: int) -> tuple[list[list[float]], int]:
    """The columns to draw, and how many clients each stands for.

    Clients that do not fit are sorted by their most frequent class before neighbours are averaged: averaging
    unlike clients would make the split look more even than it is.
    """
    if len(counts) <= room:
        return [list(row) for row in counts], 1
    size = math.ceil(len(counts) / room)
    ordered = sorted(counts, key=lambda row: (row.index(max(row)), -max(row)))
    blocks = [ordered[at : at + size] for at in range(0, len(ordered), size)]
    return [[sum(column) / len(block) for column in zip(*block, strict=True)] for block in blocks], size


def _bars(columns: Table, frame: _Frame) -> str:
    totals = [sum(column) for column in columns]
    most = max(totals) or 1.0
    gap = 0.15 * frame.cell_width if frame.cell_width > 4 else 0.0
    base = frame.top - 8
    outline = "".join(
        f"M{frame.left + i * frame.cell_width + gap:.1f},{base:.1f}"
        f"v{-_BARS * total / most:.1f}h{frame.cell_width - 2 * gap:.1f}V{base:.1f}z"
        for i, total in enumerate(totals)
        if total
    )
    label = text(frame.left, base - _BARS - 7, f"samples per client, at most {most:,.0f}")
    return label + tag("path", d=outline or None, fill=MUTED, fill_opacity=0.45, class_="bar")


def _rows(names: Sequence[str], frame: _Frame) -> str:
    step = stride(frame.rows, 14 / frame.cell_height)
    parts = []
    for index, name in enumerate(names):
        middle = frame.top + (index + 0.5) * frame.cell_height
        if frame.bubbles:
            parts.append(tag("line", x1=frame.left, y1=middle, x2=frame.right, y2=middle, stroke=GRID, class_="grid"))
        if index % step == 0:
            parts.append(text(frame.left - 8, middle + 4, shorten(name, _NAME_ROOM), anchor="end"))
    return "".join(parts) + upright_title((frame.top + frame.bottom) / 2, "class")


def _columns(frame: _Frame, per_column: int) -> str:
    middle = (frame.left + frame.right) / 2
    if per_column > 1:
        what, how = "clients, by their most frequent class", f"{per_column} per column, averaged"
        return text(middle, frame.bottom + 18, what, anchor="middle") + text(
            middle, frame.bottom + 34, how, anchor="middle"
        )
    step = stride(frame.columns, (text_width(str(frame.columns)) + 10) / frame.cell_width)
    labels = [
        text(frame.left + (i + 0.5) * frame.cell_width, frame.bottom + 16, i, anchor="middle")
        for i in range(0, frame.columns, step)
    ]
    return "".join(labels) + text(middle, frame.bottom + 34, "client", anchor="middle")


def _bubbles(columns: Table, frame: _Frame) -> str:
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


def _radius(share: float, frame: _Frame) -> float:
    """Radius for a share of the largest count; neighbours in a row may touch but not overlap."""
    largest = 0.5 * min(frame.cell_width, frame.cell_height * 1.15) - 0.5
    return max(0.8, largest * math.sqrt(share))


def _shades(columns: Table, frame: _Frame) -> str:
    """One path per shade, so that thousands of cells stay small."""
    most = max(max(column) for column in columns) or 1.0
    outlines: dict[int, list[str]] = {}
    for i, column in enumerate(columns):
        for c, n in enumerate(column):
            if n:
                x, y = frame.left + i * frame.cell_width, frame.top + c * frame.cell_height
                cell = f"M{x:.1f},{y:.1f}h{frame.cell_width:.1f}v{frame.cell_height:.1f}h-{frame.cell_width:.1f}z"
                outlines.setdefault(_level(n, most), []).append(cell)
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
    shades = (
        tag("path", d="".join(cells), fill=_CELL, fill_opacity=level / _LEVELS, class_="cells")
        for level, cells in sorted(outlines.items())
    )
    return edge + "".join(shades)


def _level(n: float, most: float) -> int:
    """Shade from 1 to `_LEVELS`; the square root keeps small counts visible."""
    return max(1, math.ceil(_LEVELS * math.sqrt(n / most) - 1e-9))


def _key(columns: Table, frame: _Frame) -> str:
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


def _key_mark(x: float, y: float, half: float, share: float, frame: _Frame) -> str:
    if frame.bubbles:
        return tag("circle", cx=x + half, cy=y - 4, r=half, fill=_CELL, fill_opacity=0.85, class_="cells")
    opacity = _level(share, 1.0) / _LEVELS
    return tag("rect", x=x, y=y - 11, width=2 * half, height=13, fill=_CELL, fill_opacity=opacity, class_="cells")
