"""Line charts as SVG, with a band around each line."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedblade.charts import PERCENT, Axis, Chart, Line, LinePanel, Series
from fedblade.charts.palette import COLOURS, GRID, MUTED
from fedblade.report._axes import PixelAxis, linear_axis, log_axis
from fedblade.report._svg import CROWD_STYLE, document, escape, line_style, path, tag, text, text_width, upright_title
from fedblade.results import evenly

MOST_POINTS, MOST_SMALL_POINTS = 600, 100
"""Points of a line that a reader can tell apart in a large and in a small drawing."""
_RIGHT, _BOTTOM = 12, 44
_TITLE_ROOM = 24
_COMPACT = 480
_SHADE = 0.16
_DOTS = "1.5 3.5"
"""The dashes of all lines but the first where the lines of a panel have the colour of one group."""
_DIGITS, _FRAME_DIGITS = 4, 3
"""Significant digits for the script; a pixel of a logarithmic scale is a step of more than a hundredth."""


def draw_lines(
    chart: Chart, size: tuple[float, float], *, name: str, most: int = MOST_POINTS, alone: bool = False
) -> str:
    """The chart as SVG, without a legend, for the page has one; `name` must be unique within a page.

    A picture that stands `alone` has all that a file of its own needs.
    """
    width, height = size
    panel = _thinned(chart.panel, most)
    top, bottom = 12.0, height - _BOTTOM
    series = [line.series for line in panel.lines]
    y = _y_axis(panel.y, [_drawn_range(line) for line in panel.lines], top, bottom)
    start = _TITLE_ROOM + max(text_width(y.print_tick(tick)) for tick in y.ticks) + 8
    x = _x_axis(panel, series, start, width)
    drawn = "".join(_band(line, x, y) for line in panel.lines)
    drawn += "".join(_line(panel, position, x, y) for position in range(len(panel.lines)))
    return document(
        _grid(x, y) + _axis_titles(panel, x, y, bottom) + (_diagonal(x, y) if panel.diagonal else "") + drawn,
        size=(width, bottom + _BOTTOM),
        title=chart.title,
        desc=chart.about,
        name=name,
        alone=alone,
        data_x=x.for_script,
        data_y=y.for_script,
    )


def script_data(chart: Chart, *, most: int = MOST_POINTS) -> dict[str, Any]:
    """What the page's script needs to name the values under the pointer and to change the round."""
    panel = _thinned(chart.panel, most)
    shared = max((line.series.x for line in panel.lines), key=len)
    lines = []
    for line in panel.lines:
        values: dict[str, Any] = {"g": line.index, "y": _shortened(line.series.y)}
        values |= {} if line.series.x == shared else {"x": _shortened(line.series.x)}
        lines.append(values | ({"label": line.part} if line.part else {}))
    frames = [[_shortened(values, _FRAME_DIGITS) for values in frame] for frame in chart.frames]
    data = {"name": panel.x.words, "of": panel.y.words, "x": _shortened(shared), "lines": lines}
    return data | ({"frames": frames} if frames else {})


def thin(series: Series, most: int = MOST_POINTS) -> Series:
    """The series with at most `most` points, evenly chosen, its last point kept."""
    if len(series.x) <= most:
        return series
    keep = evenly(range(len(series.x)), most)
    columns = (series.x, series.y, series.low, series.high)
    return Series(*(tuple(values[i] for i in keep) for values in columns))


def _thinned(panel: LinePanel, most: int) -> LinePanel:
    """The panel with no more points than can be told apart."""
    return replace(panel, lines=tuple(replace(line, series=thin(line.series, most)) for line in panel.lines))


def _x_axis(panel: LinePanel, series: Sequence[Series], start: float, width: float) -> PixelAxis:
    last = max(*(values.x[-1] for values in series), PERCENT[1] if panel.diagonal else series[0].x[-1])
    first = min(0, *(values.x[0] for values in series))
    ticks = 8 if width > _COMPACT else 5
    end = width - _RIGHT - 6
    return linear_axis(first, last, start=start, end=end, ticks=ticks, whole=panel.x.whole, snap=False)


def _y_axis(axis: Axis, series: Sequence[Series], top: float, bottom: float) -> PixelAxis:
    low, high = axis.span or (min(min(values.low) for values in series), max(max(values.high) for values in series))
    if axis.scale == "log":
        return log_axis(low, high, start=bottom, end=top)
    pixels = linear_axis(low, high, start=bottom, end=top, ticks=6 if bottom - top > 200 else 4)
    if axis.bounds is None:
        return pixels
    floor, ceiling = max(pixels.low, axis.bounds[0]), min(pixels.high, axis.bounds[1])
    ticks = tuple(tick for tick in pixels.ticks if floor <= tick <= ceiling)
    return PixelAxis(floor, ceiling, ticks, bottom, top) if floor < ceiling else pixels


def _drawn_range(line: Line) -> Series:
    """The series with the heights that are drawn: without a band those of the line alone."""
    return line.series if line.band else replace(line.series, low=line.series.y, high=line.series.y)


def _axis_titles(panel: LinePanel, x: PixelAxis, y: PixelAxis, bottom: float) -> str:
    label = panel.y.words + (" (log scale)" if y.log else "")
    across = text((x.start + x.end) / 2, bottom + 38, panel.x.words, anchor="middle")
    return upright_title((y.start + y.end) / 2, label) + across


def _line(panel: LinePanel, position: int, x: PixelAxis, y: PixelAxis) -> str:
    """The line, with a dot at its last point so that a single evaluation can be seen too."""
    line = panel.lines[position]
    points = _points(line.series.x, line.series.y, x, y)
    style = CROWD_STYLE if line.crowd else line_style(line.index)
    if line.part:
        style["stroke_dasharray"] = _DOTS if position else None
    label = line.part or panel.names[line.index]
    hint = f"{label}: {line.series.y[-1]:.4g} at {panel.x.words} {line.series.x[-1]:g}"
    stroke = tag(
        "path",
        tag("title", escape(hint)),
        d=path(points),
        fill="none",
        stroke_width=2,
        stroke_linejoin="round",
        **style,
    )
    dot = tag("circle", "", cx=points[-1][0], cy=points[-1][1], r=3, **_fill("dot", line))
    number = position if line.part else line.index
    return tag("g", stroke + dot, class_="series", data_g=line.index, data_line=number)


def _grid(x: PixelAxis, y: PixelAxis) -> str:
    parts = []
    for tick in y.ticks:
        level = y.at(tick)
        parts.append(tag("line", x1=x.start, y1=level, x2=x.end, y2=level, stroke=GRID, class_="grid"))
        parts.append(text(x.start - 8, level + 4, y.print_tick(tick), anchor="end"))
    for tick in x.ticks:
        across = x.at(tick)
        parts.append(tag("line", x1=across, y1=y.start, x2=across, y2=y.start + 5, stroke=MUTED, class_="axis"))
        parts.append(text(across, y.start + 19, f"{tick:g}", anchor="middle"))
    parts.append(tag("line", x1=x.start, y1=y.start, x2=x.end, y2=y.start, stroke=MUTED, class_="axis"))
    return "".join(parts)


def _diagonal(x: PixelAxis, y: PixelAxis) -> str:
    points = _points(PERCENT, PERCENT, x, y)
    return tag("path", d=path(points), fill="none", stroke=MUTED, stroke_dasharray="4 4", class_="axis")


def _band(line: Line, x: PixelAxis, y: PixelAxis) -> str:
    series = line.series
    if series.low == series.high or not line.band:
        return ""
    upper, lower = _points(series.x, series.high, x, y), _points(series.x, series.low, x, y)
    outline = path([*upper, *reversed(lower)], closed=True)
    band = tag("path", "", d=outline, fill_opacity=_SHADE, **_fill("band", line))
    return tag("g", band, class_="series", data_g=line.index)


def _fill(kind: str, line: Line) -> dict[str, object]:
    """The colour of a dot or a band, as an attribute and as the class of the style sheet."""
    colour = line.index % len(COLOURS)
    return {
        "fill": MUTED if line.crowd else COLOURS[colour],
        "class_": f"{kind} crowd" if line.crowd else f"{kind} f{colour}",
    }


def _points(across: Sequence[float], up: Sequence[float], x: PixelAxis, y: PixelAxis) -> list[tuple[float, float]]:
    return [(x.at(a), y.at(b)) for a, b in zip(across, up, strict=True)]


def _shortened(values: Sequence[float | None], digits: int = _DIGITS) -> list[float | int | None]:
    """The values rounded to `digits` significant digits; None for values that are missing or not finite."""
    short = [float(f"{v:.{digits}g}") if v is not None and math.isfinite(v) else None for v in values]
    return [int(v) if v is not None and v.is_integer() else v for v in short]
