"""Small square heat maps, one per method, of which a script can exchange the values."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from fedblade.report._cells import runs_of
from fedblade.report._data import embed
from fedblade.report._html import frames, name_cell
from fedblade.report._svg import COLOURS, GRID, document, shorten, stride, tag, text, text_width, upright_title
from fedblade.results import Array, Group, Snapshots, Vector, side_of, snapshots

_LEVELS = 8
_WIDTH = 250.0
_NAME_ROOM = 64.0
_UNKNOWN, _FULL = 255, 254
# Bytes of all stored maps of one kind, so that a hundred classes cost rounds and not megabytes.
_BUDGET = 200_000


@dataclass(frozen=True)
class HeatMap:
    """What the maps of all methods have in common; values lie in [-1, 1], or in [0, 1] if not `signed`."""

    name: str
    title: str
    class_names: tuple[str, ...]
    across: str
    down: str
    signed: bool

    def panels(self, groups: Sequence[Group], shown: Snapshots) -> str:
        """A map per group in a row that wraps, with the slider and the scale."""
        drawn = "".join(
            self._panel(index, group.label, shown.values[index])
            for index, group in enumerate(groups)
            if shown.values[index][-1] is not None
        )
        return frames(shown.rounds, f'<div class="panels">{drawn}</div>{self._key()}')

    def _panel(self, index: int, label: str, values: Sequence[Vector | None]) -> str:
        data = {
            "side": len(self.class_names),
            "names": list(self.class_names),
            "across": self.across,
            "down": self.down,
            "signed": self.signed,
            "frames": [None if each is None else packed(each, signed=self.signed) for each in values],
        }
        return (
            f'<figure class="panel" data-g="{index}"><p class="figure-title">{name_cell(index, label)}</p>'
            f"{self._draw(index, label, values[-1] or ())}{embed(data)}</figure>"
        )

    def _draw(self, index: int, label: str, values: Vector) -> str:
        side = len(self.class_names)
        left = 22 + min(_NAME_ROOM, max(text_width(n) for n in self.class_names)) + 6
        cell = (_WIDTH - left - 4) / side
        bottom = 4 + side * cell
        body = self._rows(left, cell) + self._columns(left, cell, bottom)
        cells = tag("g", cells_of(values, side), class_="heat", transform=f"translate({left:.2f} 4) scale({cell:.4f})")
        edge = tag(
            "rect", x=left, y=4.0, width=side * cell, height=side * cell, fill="none", stroke=GRID, class_="grid"
        )
        return document(
            body + (cells or "") + edge,
            size=(_WIDTH, bottom + 40),
            title=f"{self.title}: {label}",
            desc=f"{side} by {side} cells; {self.down} down, {self.across} across.",
            name=f"{self.name}-{index}",
            data_map=f"{left:.2f} 4 {cell:.4f}",
        )

    def _rows(self, left: float, cell: float) -> str:
        step = stride(len(self.class_names), 14 / cell)
        labels = [
            text(left - 6, 4 + (i + 0.5) * cell + 4, shorten(self.class_names[i], _NAME_ROOM), anchor="end")
            for i in range(0, len(self.class_names), step)
        ]
        return "".join(labels) + upright_title(4 + len(self.class_names) * cell / 2, self.down)

    def _columns(self, left: float, cell: float, bottom: float) -> str:
        widest = min(_NAME_ROOM, max(text_width(n) for n in self.class_names))
        step = stride(len(self.class_names), (widest + 8) / cell)
        middles = {i: left + (i + 0.5) * cell for i in range(0, len(self.class_names), step)}
        labels = [
            text(middle, bottom + 16, shorten(self.class_names[i], _NAME_ROOM), anchor="middle")
            for i, middle in middles.items()
            if left <= middle - widest / 2 + cell and middle + widest / 2 <= _WIDTH
        ]
        return "".join(labels) + text(left + (bottom - 4) / 2, bottom + 34, self.across, anchor="middle")

    def _key(self) -> str:
        """The scale: which strength of which colour stands for which value."""
        ends = ("−1", "0", "1") if self.signed else ("0 %", "50 %", "100 %")
        steps = range(-_LEVELS if self.signed else 1, _LEVELS + 1)
        width = 12.0
        cells = [
            tag("rect", "", x=20 + at * width, y=2.0, width=width, height=12.0, stroke="none", **_paint(level, "fill"))
            for at, level in enumerate(steps)
            if level
        ]
        span = len(steps) * width
        marks = [
            text(20 + share * span, 30, end, anchor="middle") for share, end in zip((0, 0.5, 1), ends, strict=True)
        ]
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


def maps_of(groups: Sequence[Group], array: Array) -> tuple[tuple[str, ...], Snapshots] | None:
    """The names of the classes and the maps over as many rounds as the page has room for, None where there are none."""
    side = side_of(groups, array)
    shown = snapshots(groups, array, most=rounds_within(side, len(groups))) if side else None
    return None if side is None or shown is None else (class_names(groups, side), shown)


def class_names(groups: Sequence[Group], side: int) -> tuple[str, ...]:
    """The classes' names where the runs agree on them, otherwise their numbers."""
    found = {run.partition.class_names for group in groups for run in group.runs if run.partition}
    names = found.pop() if len(found) == 1 else None
    return names if names is not None and len(names) == side else tuple(map(str, range(side)))


def strongest(values: Vector | None, side: int) -> tuple[float, int, int] | None:
    """The largest value off the diagonal with its row and column."""
    cells = ((value, *divmod(at, side)) for at, value in enumerate(values or ()) if value is not None)
    return max(((value, row, column) for value, row, column in cells if row != column), default=None)


def rounds_within(side: int, groups: int) -> int:
    """How many rounds of maps fit into the page."""
    return max(1, min(20, _BUDGET // (side * side * groups)))


def packed(values: Vector, *, signed: bool) -> str:
    """The values as base64 of one byte each: 0 to 254 over the range, 255 for unknown."""
    low, width = (-1.0, 2.0) if signed else (0.0, 1.0)
    shares = (None if v is None else min(1.0, max(0.0, (v - low) / width)) for v in values)
    return base64.b64encode(bytes(_UNKNOWN if s is None else round(s * _FULL) for s in shares)).decode("ascii")


def cells_of(values: Vector, side: int) -> str:
    """Cells of size 1, all of a strength in one path; unknown ones stay empty."""
    levels = [0 if value is None else level_of(value) for value in values]
    return "".join(
        tag("path", "", d=drawn, **_paint(level, "stroke")) for level, drawn in runs_of(levels, side).items()
    )


def level_of(value: float) -> int:
    """Strength of the colour, from -8 to 8."""
    return max(-_LEVELS, min(_LEVELS, int(abs(value) * _LEVELS + 0.5) * (1 if value > 0 else -1)))


def _paint(level: int, kind: str) -> dict[str, object]:
    side = "pos" if level > 0 else "neg"
    colour = COLOURS[0] if level > 0 else COLOURS[1]
    return {kind: colour, f"{kind}_opacity": abs(level) / _LEVELS, "class_": f"{side}-{kind}"}
