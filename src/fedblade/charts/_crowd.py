"""Charts of many groups: the lines of a few of them, and a band that the middle of all groups lies in."""

from collections.abc import Sequence
from dataclasses import replace

from fedblade.charts._clients import quantile
from fedblade.charts._model import Chart, Line, Series

MOST_DRAWN = 12
"""Up to this many groups are all drawn."""
MOST_BANDS = 4
"""Up to this many lines have bands for their seeds; more bands hide each other."""
_LOW, _HIGH = 0.1, 0.9


def crowd_name(count: int) -> str:
    """The text in the legend for the band that stands for `count` groups."""
    return f"middle 80 % of all {count}"


def without_many_bands(chart: Chart | None) -> Chart | None:
    """The chart without the bands of seeds, if it shows more groups than `MOST_BANDS`."""
    if chart is None or len({line.index for line in chart.panel.lines if not line.crowd}) <= MOST_BANDS:
        return chart
    lines = tuple(replace(line, band=line.crowd) for line in chart.panel.lines)
    return replace(chart, panel=replace(chart.panel, lines=lines))


def with_crowd(chart: Chart | None, drawn: Sequence[int]) -> Chart | None:
    """The chart with the lines of the groups `drawn`, and behind them the median and the middle 80 % of all groups.

    The band is drawn where groups have values at the same places; it belongs to the last round, so that there is no
    choice of round. A chart of one group stays if the group is drawn. Without a line left there is no chart.
    """
    if chart is None:
        return None
    panel, place = chart.panel, {index: at for at, index in enumerate(drawn)}
    lines = [replace(line, index=place[line.index]) for line in panel.lines if line.index in place]
    if chart.owner is not None:
        return (
            replace(chart, panel=replace(panel, lines=tuple(lines)), owner=place[chart.owner], frames=())
            if lines
            else None
        )
    band = _middle([line.series for line in panel.lines])
    if band is not None:
        lines.insert(0, Line(len(drawn), band, crowd=True))
    names = (*(panel.names[index] for index in drawn), crowd_name(len(panel.names)))
    return replace(chart, panel=replace(panel, lines=tuple(lines), names=names), frames=()) if lines else None


def _middle(series: Sequence[Series]) -> Series | None:
    """The median and the quantiles of all series, at the places that more than half of the series have."""
    heights: dict[float, list[float]] = {}
    for values in series:
        for x, y in zip(values.x, values.y, strict=True):
            heights.setdefault(x, []).append(y)
    columns = {x: sorted(values) for x, values in sorted(heights.items()) if 2 * len(values) > len(series)}
    if not columns:
        return None
    low, middle, high = (tuple(quantile(values, share) for values in columns.values()) for share in (_LOW, 0.5, _HIGH))
    return Series(tuple(columns), middle, low, high)
