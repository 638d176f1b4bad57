"""Line charts with a band around each line."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedblade.report._axes import Axis, linear_axis, log_axis
from fedblade.report._data import briefly
from fedblade.report._svg import (
    COLOURS,
    GRID,
    MUTED,
    document,
    escape,
    legend,
    line_style,
    path,
    tag,
    text,
    text_width,
    upright_title,
)
from fedblade.results import Curve

_MAX_POINTS, _MAX_SMALL = 600, 100
_LOG_RATIO = 100
_RIGHT, _BOTTOM = 12, 44
_TITLE_ROOM = 24
_COMPACT = 600
# The second line of a panel, which has the colour of the first.
_DOTS = "1.5 3.5"


@dataclass(frozen=True)
class LineChart:
    """What a line chart shows; a curve that is None keeps its colour but draws nothing.

    A chart with an `owner` is about one group: all its lines have that group's colour, the first one drawn through and
    the others dotted. `span` fixes the range of the values, `ideal` is a reference line without a legend.
    """

    title: str
    desc: str
    x_label: str
    y_label: str
    labels: tuple[str, ...]
    curves: tuple[Curve | None, ...]
    log_if_wide: bool = False
    bounds: tuple[float, float] | None = None
    span: tuple[float, float] | None = None
    log: bool = False
    whole: bool = True
    keyed: bool = True
    owner: int | None = None
    ideal: Curve | None = None

    def draw(self, size: tuple[float, float], *, name: str) -> str:
        """The chart as SVG; `name` must be unique within a page."""
        width, height = size
        left = 52 if width > _COMPACT else 4
        key, key_height = legend(self.labels, left=left, width=width - left - _RIGHT, top=4) if self.keyed else ("", 0)
        top, bottom = 4 + key_height + 8, 4 + key_height + height - _BOTTOM
        curves = self._drawn()
        y = self._y_axis([c for _, c in curves], top, bottom)
        start = _TITLE_ROOM + max(text_width(y.name_of(tick)) for tick in y.ticks) + 8
        x = self._x_axis([c for _, c in curves], start, width)
        bands = "".join(_band(self._place(index), curve, x, y) for index, curve in curves)
        lines = "".join(self._line(index, curve, x, y) for index, curve in curves)
        ideal = _reference(self.ideal, x, y) if self.ideal else ""
        return document(
            key + _grid(x, y) + self._axis_titles(x, y, bottom) + ideal + bands + lines,
            size=(width, bottom + _BOTTOM),
            title=self.title,
            desc=self.desc,
            name=name,
            data_x=x.told,
            data_y=y.told,
        )

    def payload(self) -> dict[str, Any]:
        """What the page's script needs to name the values under the pointer."""
        curves = self._drawn()
        shared = max((curve.rounds for _, curve in curves), key=len)
        lines = []
        for index, curve in curves:
            line: dict[str, Any] = {"g": self._place(index), "y": briefly(curve.mean)}
            line |= {} if curve.rounds == shared else {"x": briefly(curve.rounds)}
            lines.append(line | ({} if self.owner is None else {"label": self.labels[index]}))
        return {"name": self.x_label, "x": briefly(shared), "lines": lines}

    def _drawn(self) -> list[tuple[int, Curve]]:
        """The curves there are, with no more points than can be told apart; charts without a legend are small."""
        most = _MAX_POINTS if self.keyed else _MAX_SMALL
        return [(index, thin(curve, most)) for index, curve in enumerate(self.curves) if curve is not None]

    def _place(self, index: int) -> int:
        """Which group a line belongs to."""
        return index if self.owner is None else self.owner

    def _x_axis(self, curves: Sequence[Curve], start: float, width: float) -> Axis:
        last = max(curve.rounds[-1] for curve in (*curves, *([self.ideal] if self.ideal else [])))
        first = min(0, *(curve.rounds[0] for curve in curves))
        ticks = 8 if width > _COMPACT else 5
        end = width - _RIGHT - 6
        return linear_axis(first, last, start=start, end=end, ticks=ticks, whole=self.whole, snap=False)

    def _y_axis(self, curves: Sequence[Curve], top: float, bottom: float) -> Axis:
        low, high = self.span or (min(min(c.low) for c in curves), max(max(c.high) for c in curves))
        if self.log or (self.log_if_wide and low > 0 and high / low > _LOG_RATIO):
            return log_axis(low, high, start=bottom, end=top)
        axis = linear_axis(low, high, start=bottom, end=top, ticks=6 if bottom - top > 200 else 4)
        if self.bounds is None:
            return axis
        floor, ceiling = max(axis.low, self.bounds[0]), min(axis.high, self.bounds[1])
        ticks = tuple(tick for tick in axis.ticks if floor <= tick <= ceiling)
        return Axis(floor, ceiling, ticks, bottom, top) if floor < ceiling else axis

    def _axis_titles(self, x: Axis, y: Axis, bottom: float) -> str:
        label = self.y_label + (" (log scale)" if y.log else "")
        across = text((x.start + x.end) / 2, bottom + 38, self.x_label, anchor="middle")
        return upright_title((y.start + y.end) / 2, label) + across

    def _line(self, index: int, curve: Curve, x: Axis, y: Axis) -> str:
        """The line, with a dot at its last point so that a single evaluation can be seen too."""
        points = [(x.at(r), y.at(v)) for r, v in zip(curve.rounds, curve.mean, strict=True)]
        place = self._place(index)
        style = line_style(place)
        if self.owner is not None:
            style["stroke_dasharray"] = _DOTS if index else None
        slot = place % len(COLOURS)
        hint = tag(
            "title", escape(f"{self.labels[index]}: {curve.mean[-1]:.4g} at {self.x_label} {curve.rounds[-1]:g}")
        )
        stroke = tag("path", hint, d=path(points), fill="none", stroke_width=2, stroke_linejoin="round", **style)
        dot = tag("circle", cx=points[-1][0], cy=points[-1][1], r=3, fill=COLOURS[slot], class_=f"dot f{slot}")
        return tag("g", stroke + dot, class_="series", data_g=place, data_line=index)


def thin(curve: Curve, most: int = _MAX_POINTS) -> Curve:
    """The curve with at most `most` points, evenly chosen, its last point kept."""
    count = len(curve.rounds)
    if count <= most:
        return curve
    keep = sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})
    return Curve(
        tuple(curve.rounds[i] for i in keep),
        tuple(curve.mean[i] for i in keep),
        tuple(curve.low[i] for i in keep),
        tuple(curve.high[i] for i in keep),
    )


def _grid(x: Axis, y: Axis) -> str:
    parts = []
    for tick in y.ticks:
        level = y.at(tick)
        parts.append(tag("line", x1=x.start, y1=level, x2=x.end, y2=level, stroke=GRID, class_="grid"))
        parts.append(text(x.start - 8, level + 4, y.name_of(tick), anchor="end"))
    for tick in x.ticks:
        across = x.at(tick)
        parts.append(tag("line", x1=across, y1=y.start, x2=across, y2=y.start + 5, stroke=MUTED, class_="axis"))
        parts.append(text(across, y.start + 19, f"{tick:g}", anchor="middle"))
    parts.append(tag("line", x1=x.start, y1=y.start, x2=x.end, y2=y.start, stroke=MUTED, class_="axis"))
    return "".join(parts)


def _reference(curve: Curve, x: Axis, y: Axis) -> str:
    points = [(x.at(r), y.at(v)) for r, v in zip(curve.rounds, curve.mean, strict=True)]
    return tag("path", d=path(points), fill="none", stroke=MUTED, stroke_dasharray="4 4", class_="axis")


def _band(place: int, curve: Curve, x: Axis, y: Axis) -> str:
    if curve.low == curve.high:
        return ""
    upper = [(x.at(r), y.at(v)) for r, v in zip(curve.rounds, curve.high, strict=True)]
    lower = [(x.at(r), y.at(v)) for r, v in zip(curve.rounds, curve.low, strict=True)]
    slot = place % len(COLOURS)
    outline = path([*upper, *reversed(lower)], closed=True)
    band = tag("path", d=outline, fill=COLOURS[slot], fill_opacity=0.16, class_=f"band f{slot}")
    return tag("g", band, class_="series", data_g=place)
