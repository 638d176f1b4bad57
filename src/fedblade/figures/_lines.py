"""Panels of lines in matplotlib: the look of lines, the scales of axes, and one legend for all panels."""

import math
import textwrap
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from fedblade.charts import PERCENT, Line, LinePanel
from fedblade.charts.palette import COLOURS, MUTED
from fedblade.figures._style import DASHES, LETTERS_PER_INCH, MARKERS, STEPS

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_MARKS = 5
"""Markers per line: enough to follow the line, few enough to see it."""
_MARGIN = 0.1
_BAND, _LEAST_SHADE = "lowest to highest seed", 0.2
"""What the legend says of bands, and how dark their sample is at least: one band alone is faint."""
_HANDLE = 8
"""The width of the line sample before a label, in letters."""
_MOST_COLUMNS = 6
_SHARE_OF_AXES = 0.7
"""The share of a panel's width that its horizontal axis takes."""


def draw_lines(figure: "Figure", axes: Sequence["Axes"], panels: Sequence[LinePanel], width: float) -> float:
    """Draw the panels, all `width` inches wide, and one legend above them; returns its height in inches."""
    names = panels[0].names
    parts = list(dict.fromkeys(line.part for panel in panels for line in panel.lines))
    inches = width * _SHARE_OF_AXES
    shade = 0.15 if min(len(names), len(parts)) == 1 else 0.06
    scales = _by_scale(panels)
    for first, *others in scales:
        for index in others:
            axes[index].sharey(axes[first])
    for ax, panel in zip(axes, panels, strict=False):
        if panel.diagonal:
            ax.plot(PERCENT, PERCENT, color=MUTED, linestyle=DASHES[1], linewidth=0.8, zorder=1)
        for line in panel.lines:
            _draw_line(ax, line, _line_look(line, names, parts), shade)
        _scale_across(ax, panel, inches)
    for alike in scales:
        _scale_up(axes[alike[0]], [panels[index] for index in alike])
    drawn = {names[line.index] for panel in panels for line in panel.lines}
    entries: dict[str, Artist] = {**_entries(names, drawn, parts)}
    if any(line.series.low != line.series.high for panel in panels for line in panel.lines):
        entries[_BAND] = _band_handle(shade)
    return _legend(figure, entries)


def _by_scale(panels: Sequence[LinePanel]) -> list[list[int]]:
    """The indices of panels, gathered by the vertical axis that they share."""
    by_key: dict[object, list[int]] = {}
    for index, panel in enumerate(panels):
        by_key.setdefault(panel.shared or index, []).append(index)
    return list(by_key.values())


def _line_look(line: Line, names: Sequence[str], parts: Sequence[str]) -> dict[str, Any]:
    """Colour and marker by the runs and dashes by the number; where there is only one of either, all by the other."""
    part = parts.index(line.part)
    hue = line.index if len(names) > 1 else part
    dash = part if len(parts) > 1 else hue
    return _look(hue, dash)


def _look(hue: int, dash: int) -> dict[str, Any]:
    return {
        "color": COLOURS[hue % len(COLOURS)],
        "linestyle": DASHES[dash % len(DASHES)],
        "marker": MARKERS[hue % len(MARKERS)],
    }


def _draw_line(ax: "Axes", line: Line, look: dict[str, Any], shade: float) -> None:
    series = line.series
    if series.is_level:
        ax.axhline(series.y[0], color=look["color"], linestyle=look["linestyle"])
        return
    step = max(1, len(series.x) // _MARKS)
    start = MARKERS.index(look["marker"]) * step // len(MARKERS) if len(series.x) > _MARKS else 0
    ax.plot(series.x, series.y, markevery=(start, step), markeredgewidth=0, **look)
    if series.low != series.high:
        ax.fill_between(series.x, series.low, series.high, color=look["color"], alpha=shade, linewidth=0)


def _labels_with_room(values: Sequence[float], inches: float) -> list[str]:
    """Labels for values on a logarithmic axis of this length, empty where the label before leaves no room."""
    labels, free = [], -math.inf
    span = math.log(values[-1] / values[0]) or 1.0
    for value in values:
        text = f"{value:g}"
        middle, half = inches * math.log(value / values[0]) / span, len(text) / LETTERS_PER_INCH / 2
        fits = middle - half >= free
        labels.append(text if fits else "")
        free = middle + half + _MARGIN / 2 if fits else free
    return labels


def _scale_across(ax: "Axes", panel: LinePanel, inches: float) -> None:
    from matplotlib.ticker import MaxNLocator, NullFormatter

    values = sorted({x for line in panel.lines for x in line.series.x})
    if panel.x.scale == "log" and values and values[0] > 0:
        ax.set_xscale("log")
        ax.xaxis.set_minor_formatter(NullFormatter())
        if values[-1] < 1000 * values[0]:
            ax.set_xticks(values, _labels_with_room(values, inches))
            ax.minorticks_off()
    else:
        ax.xaxis.set_major_locator(MaxNLocator(max(4, int(2 * inches)), integer=panel.x.whole, steps=STEPS))


def _scale_up(ax: "Axes", panels: Sequence[LinePanel]) -> None:
    """The vertical axis of panels that are compared by eye: logarithmic in all of them or in none."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

    heights = [y for panel in panels for line in panel.lines for y in (*line.series.low, *line.series.high)]
    if panels[0].y.scale == "log" and min(heights) > 0:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
        ax.yaxis.set_major_formatter(ScalarFormatter())
        ax.yaxis.set_minor_formatter(NullFormatter())
    else:
        ax.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
    above = [y for y in heights if y > panels[0].y.floor]
    if above and len(above) < len(heights):
        ax.set_ylim(bottom=min(above) - _MARGIN * (max(above) - min(above)))


def _legend(figure: "Figure", entries: Mapping[str, "Artist"]) -> float:
    """A legend above the panels, as wide as the figure allows; none where there is one line only, without a band."""
    width = figure.get_figwidth()
    labels = [textwrap.fill(label, int(width * LETTERS_PER_INCH) - _HANDLE) for label in entries]
    for columns in range(min(len(entries), _MOST_COLUMNS), 0, -1):
        legend = figure.legend(list(entries.values()), labels, loc="outside upper center", ncols=columns)
        extent = legend.get_window_extent()
        if extent.width / figure.dpi <= width - _MARGIN or columns == 1:
            return float(extent.height / figure.dpi) + _MARGIN / 2
        legend.remove()
    return 0.0


def _entries(names: Sequence[str], drawn: Set[str], parts: Sequence[str]) -> dict[str, "Line2D"]:
    """What the legend names: the runs that are drawn, and the numbers where a panel has several."""
    both = len(names) > 1 and len(parts) > 1
    several = enumerate(names) if len(names) > 1 else ()
    runs = {name: _look(i, 0 if both else i) for i, name in several if name in drawn}
    fields = {
        part: {**_look(i, i), "color": MUTED, "marker": ""} if both else _look(i, i)
        for i, part in enumerate(parts)
        if part
    }
    return {label: _handle(look) for label, look in (runs | fields).items()}


def _band_handle(shade: float) -> "Artist":
    from matplotlib.patches import Patch

    return Patch(facecolor=MUTED, alpha=max(2 * shade, _LEAST_SHADE), linewidth=0)


def _handle(look: dict[str, Any]) -> "Line2D":
    from matplotlib.lines import Line2D

    return Line2D([], [], markeredgewidth=0, **look)
