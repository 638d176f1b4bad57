"""A chart as plain values: what the page draws as SVG and `figures` with matplotlib."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedblade.results import Group

Scale = Literal["linear", "log"]
Range = tuple[float, float]
Matrix = tuple[tuple[float | None, ...], ...]
"""Numbers `[rows][columns]`, None where there is none."""

PERCENT: Range = (0.0, 100.0)


@dataclass(frozen=True)
class Series:
    """Points with their range over seeds. A series without `x` is a level: one value that crosses the panel."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def is_level(self) -> bool:
        """Whether the series has one height and no horizontal places."""
        return not self.x


@dataclass(frozen=True)
class Axis:
    """What an axis says and which values it covers.

    The axis never passes its `bounds`; a `span` fixes its range. Lines leave the panel on their way to the `floor`.
    """

    label: str
    unit: str = ""
    scale: Scale = "linear"
    bounds: Range | None = None
    span: Range | None = None
    whole: bool = False
    floor: float = -math.inf

    @property
    def words(self) -> str:
        """The label with its unit, as it stands in a sentence or at an axis of the page."""
        return f"{self.label}, {self.unit}" if self.unit else self.label


@dataclass(frozen=True)
class Line:
    """A line of one group of runs.

    `index` is the group's place among the panel's names. `part` names the number where the panel shows several. A
    `crowd` is no group: it shows the middle of many groups, with a band that most of them lie in. Without `band` the
    range over seeds is not drawn.
    """

    index: int
    series: Series
    part: str = ""
    crowd: bool = False
    band: bool = True


@dataclass(frozen=True)
class LinePanel:
    """Lines over one pair of axes.

    `names` are those of all lines that the runs could have, drawn or not: the index of a line among them is its colour.
    Panels with the same `shared` key have the same vertical axis. With `diagonal`, equal percentages are marked.
    """

    x: Axis
    y: Axis
    names: tuple[str, ...]
    lines: tuple[Line, ...]
    title: str = ""
    shared: str = ""
    diagonal: bool = False


@dataclass(frozen=True)
class MatrixPanel:
    """Numbers as shades; `kind` is `cosines`, `confusion` or `labels`. `shared` is as for lines."""

    title: str
    x: Axis
    y: Axis
    shade: Axis
    values: Matrix
    kind: str
    shared: str = ""


Panel = LinePanel | MatrixPanel


@dataclass(frozen=True)
class Chart:
    """One panel with its caption.

    `about` describes the picture for those who cannot see it, `reading` says how to read it, `seen` what the numbers
    show here. A chart with an `owner` shows one group alone. `frames` has the heights of every line at every round
    that a reader can choose, `frames[round][line]`.
    """

    name: str
    title: str
    about: str
    panel: LinePanel
    reading: str = ""
    seen: str = ""
    owner: int | None = None
    frames: tuple[tuple[tuple[float | None, ...], ...], ...] = ()


def series_over_seeds(x: Sequence[float], heights: Sequence[Sequence[float]]) -> Series:
    """The mean and the range of the seeds' heights at every place."""
    means = tuple(statistics.fmean(column) for column in heights)
    return Series(tuple(x), means, tuple(map(min, heights)), tuple(map(max, heights)))


def plain_series(points: Sequence[tuple[float, float]]) -> Series | None:
    """Points without a range over seeds, None where there are no points."""
    x, y = tuple(x for x, _ in points), tuple(y for _, y in points)
    return Series(x, y, y, y) if points else None


def group_panel(
    groups: Sequence[Group], series: Sequence[Series | None], x: Axis, y: Axis, *, diagonal: bool = False
) -> LinePanel:
    """A panel with a line for each group that has a series."""
    lines = tuple(Line(index, values) for index, values in enumerate(series) if values is not None)
    return LinePanel(x, y, tuple(group.label for group in groups), lines, diagonal=diagonal)
