"""Label maps: the number of samples by client and class."""

import math
from collections.abc import Sequence

from fedblade.charts.palette import GRID, MUTED
from fedblade.report._labelmarks import Frame, Table, key, marks
from fedblade.report._svg import document, shorten, stride, tag, text, text_width, upright_title

_MIN_CELL = 2.0
_BARS = 40
_NAME_ROOM = 110.0


def draw_label_map(
    counts: Table,
    width: float,
    *,
    name: str,
    class_names: Sequence[str] | None = None,
    client_names: Sequence[str] | None = None,
    title: str | None = None,
    alone: bool = False,
) -> str:
    """Clients across, classes down, samples as bubbles or shades, and a bar per client for its total."""
    clients, classes = len(counts), len(counts[0])
    names = [str(n) for n in class_names] if class_names else [str(c) for c in range(classes)]
    left = 24 + min(_NAME_ROOM, max(text_width(n) for n in names)) + 8
    columns, per_column = bin_clients(counts, int((width - left - 12) / _MIN_CELL))
    heading = text(left, 16, shorten(title, width - left), strong=True) if title else ""
    top = (36 if title else 16) + _BARS + 14
    height = min(24.0, max(_MIN_CELL, 440 / classes))
    frame = Frame(left, top, (width - left - 12) / len(columns), height, len(columns), classes)
    body = heading + _bars(columns, frame) + _rows(names, frame) + _columns(frame, per_column, client_names)
    body += marks(columns, frame) + key(columns, frame)
    desc = (
        f"{clients} clients across, {classes} classes down; the mark in a cell grows with the number of samples, "
        "an empty cell means none. Bars above show the samples each client holds."
    )
    size = (width, math.ceil(frame.bottom + 74))
    return document(body, size=size, title=title or "Label map", desc=desc, name=name, alone=alone)


def bin_clients(counts: Table, room: int) -> tuple[list[list[float]], int]:
    """The columns to draw, and the number of clients in a column.

    Clients that do not fit are sorted by their most frequent class before neighbours are averaged: averaging
    unlike clients would make the split look more even than it is.
    """
    if len(counts) <= room:
        return [list(row) for row in counts], 1
    size = math.ceil(len(counts) / room)
    ordered = sorted(counts, key=lambda row: (row.index(max(row)), -max(row)))
    blocks = [ordered[at : at + size] for at in range(0, len(ordered), size)]
    return [[sum(column) / len(block) for column in zip(*block, strict=True)] for block in blocks], size


def _bars(columns: Table, frame: Frame) -> str:
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


def _rows(names: Sequence[str], frame: Frame) -> str:
    step = stride(frame.rows, 14 / frame.cell_height)
    parts = []
    for index, name in enumerate(names):
        middle = frame.top + (index + 0.5) * frame.cell_height
        if frame.bubbles:
            parts.append(tag("line", x1=frame.left, y1=middle, x2=frame.right, y2=middle, stroke=GRID, class_="grid"))
        if index % step == 0:
            parts.append(text(frame.left - 8, middle + 4, shorten(name, _NAME_ROOM), anchor="end"))
    return "".join(parts) + upright_title((frame.top + frame.bottom) / 2, "class")


def _columns(frame: Frame, per_column: int, names: Sequence[str] | None) -> str:
    middle = (frame.left + frame.right) / 2
    if per_column > 1:
        what, how = "clients, by their most frequent class", f"{per_column} per column, averaged"
        return text(middle, frame.bottom + 18, what, anchor="middle") + text(
            middle, frame.bottom + 34, how, anchor="middle"
        )
    shown = [str(i) for i in range(frame.columns)] if names is None else [shorten(name, _NAME_ROOM) for name in names]
    step = stride(frame.columns, (max(map(text_width, shown)) + 10) / frame.cell_width)
    labels = [
        text(frame.left + (i + 0.5) * frame.cell_width, frame.bottom + 16, shown[i], anchor="middle")
        for i in range(0, frame.columns, step)
    ]
    return "".join(labels) + text(middle, frame.bottom + 34, "client", anchor="middle")
