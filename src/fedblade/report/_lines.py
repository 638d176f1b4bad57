"""Line charts with a band around each line."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedblade.report._groups import Curve
from fedblade.report._svg import (
    COLOURS,
    GRID,
    MUTED,
    Axis,
    document,
    escape,
    legend,
    line_style,
    linear_axis,
    log_axis,
    path,
    tag,
    text,
    upright_title,
)

_MAX_POINTS = 600
_LOG_RATIO = 100
_LEFT, _RIGHT, _BOTTOM = 52, 12, 44
_COMPACT = 600


@dataclass(frozen=True)
class LineChart:
    """What a line chart shows; a curve that is None keeps its colour but draws nothing."""

    title: str
    desc: str
    x_label: str
    y_label: str
    labels: tuple[str, ...]
    curves: tuple[Curve | None, ...]
    log_if_wide: bool = False
    bounds: tuple[float, float] | None = None

    def draw(self, size: tuple[float, float], *, name: str, alone: bool) -> str:
        """The chart as SVG; `name` must be unique within a page."""
        width, height = size
        left = _LEFT if width > _COMPACT else 4
        key, key_height = legend(self.labels, left=left, width=width - left - _RIGHT, top=4)
        top, bottom = 4 + key_height + 8, 4 + key_height + height - _BOTTOM
        curves = [(index, thin(curve)) for index, curve in enumerate(self.curves) if curve is not None]
        x = self._x_axis([c for _, c in curves], width)
        y = self._y_axis([c for _, c in curves], top, bottom)
        bands = "".join(_band(index, curve, x, y) for index, curve in curves)
        lines = "".join(_line(index, curve, x, y, self.labels[index]) for index, curve in curves)
        frame = _grid(x, y) + self._axis_titles(x, y, bottom)
        full = (width, bottom + _BOTTOM)
        return document(
            key + frame + bands + lines, size=full, title=self.title, desc=self.desc, name=name, alone=alone
        )

    def _x_axis(self, curves: Sequence[Curve], width: float) -> Axis:
        last = max(curve.rounds[-1] for curve in curves)
        first = min(0, *(curve.rounds[0] for curve in curves))
        ticks = 8 if width > _COMPACT else 5
        end = width - _RIGHT - 6
        return linear_axis(first, last, start=_LEFT, end=end, ticks=ticks, whole=True, snap=False)

    def _y_axis(self, curves: Sequence[Curve], top: float, bottom: float) -> Axis:
        low, high = min(min(c.low) for c in curves), max(max(c.high) for c in curves)
        if self.log_if_wide and low > 0 and high / low > _LOG_RATIO:
            return log_axis(low, high, start=bottom, end=top)
        axis = linear_axis(low, high, start=bottom, end=top, ticks=6)
        if self.bounds is None:
            return axis
        floor, ceiling = max(axis.low, self.bounds[0]), min(axis.high, self.bounds[1])
        ticks = tuple(tick for tick in axis.ticks if floor <= tick <= ceiling)
        return Axis(floor, ceiling, ticks, bottom, top) if floor < ceiling else axis

    def _axis_titles(self, x: Axis, y: Axis, bottom: float) -> str:
        label = self.y_label + (" (log scale)" if y.log else "")
        across = text((x.start + x.end) / 2, bottom + 38, self.x_label, anchor="middle")
        return upright_title((y.start + y.end) / 2, label) + across


def thin(curve: Curve) -> Curve:
    """The curve with at most `_MAX_POINTS` points, evenly chosen, its last point kept."""
    count = len(curve.rounds)
    if count <= _MAX_POINTS:
        return curve
    keep = sorted({round(i * (count - 1) / (_MAX_POINTS - 1)) for i in range(_MAX_POINTS)})
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
        parts.append(text(x.start - 8, level + 4, f"{tick:g}", anchor="end"))
    for tick in x.ticks:
        across = x.at(tick)
        parts.append(tag("line", x1=across, y1=y.start, x2=across, y2=y.start + 5, stroke=MUTED, class_="axis"))
        parts.append(text(across, y.start + 19, f"{tick:g}", anchor="middle"))
    parts.append(tag("line", x1=x.start, y1=y.start, x2=x.end, y2=y.start, stroke=MUTED, class_="axis"))
    return "".join(parts)


def _band(index: int, curve: Curve, x: Axis, y: Axis) -> str:
    if curve.low == curve.high:
        return ""
    upper = [(x.at(r), y.at(v)) for r, v in zip(curve.rounds, curve.high, strict=True)]
    lower = [(x.at(r), y.at(v)) for r, v in zip(curve.rounds, curve.low, strict=True)]
    slot = index % len(COLOURS)
    outline = path([*upper, *reversed(lower)], closed=True)
    return tag("path", d=outline, fill=COLOURS[slot], fill_opacity=0.16, class_=f"band f{slot}")


def _line(index: int, curve: Curve, x: Axis, y: Axis, label: str) -> str:
    """The line, with a dot at its last point so that a single evaluation can be seen too."""
    points = [(x.at(r), y.at(v)) for r, v in zip(curve.rounds, curve.mean, strict=True)]
    slot = index % len(COLOURS)
    hint = tag("title", escape(f"{label}: {curve.mean[-1]:.4g} at round {curve.rounds[-1]}"))
    stroke = tag(
        "path", hint, d=path(points), fill="none", stroke_width=2, stroke_linejoin="round", **line_style(index)
    )
    dot = tag("circle", cx=points[-1][0], cy=points[-1][1], r=3, fill=COLOURS[slot], class_=f"dot f{slot}")
    return stroke + dot
