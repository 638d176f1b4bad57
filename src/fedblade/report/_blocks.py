"""The blocks that the page is made of, as values; `templates/blocks.html` writes them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from markupsafe import Markup

from fedblade.charts import Chart, ClassMaps
from fedblade.report._heatmap import draw_map, draw_scale, map_data
from fedblade.report._lines import draw_lines, script_data
from fedblade.results import Group, TableCell, TableColumn

WIDE, NARROW = 940.0, 352.0
_SMALL = (380.0, 236.0)
_TALL_ON_NARROW = 290.0


@dataclass(frozen=True)
class Cell(TableCell):
    """A cell of a table on the page: a sample of the line of `group` may stand before its text."""

    group: int | None = None
    code: bool = False
    warning: bool = False


@dataclass(frozen=True)
class TableBlock:
    """A table that scrolls inside its box; the first cell of a row heads it."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Paragraph:
    """Plain text, with a command at its end if there is one."""

    kind: ClassVar[str] = "paragraph"
    text: str
    style: str = "note"
    command: str = ""
    after: str = ""


@dataclass(frozen=True)
class Picture:
    """A drawing with its caption. A picture with a `narrow` drawing shows that one on narrow screens."""

    kind: ClassVar[str] = "picture"
    title: str
    wide: Markup
    narrow: Markup | None = None
    reading: str = ""
    seen: str = ""
    data: Mapping[str, Any] | None = None
    group: int | None = None


@dataclass(frozen=True)
class Grid:
    """Small pictures side by side, each under its title; `panels` of one kind stand closer, under methods' names."""

    kind: ClassVar[str] = "grid"
    pictures: Sequence[Picture]
    panels: bool = False
    scale: Markup | None = None


@dataclass(frozen=True)
class Frames:
    """Pictures that all show the same round, with a slider that chooses it where there are several."""

    kind: ClassVar[str] = "frames"
    rounds: Sequence[int]
    blocks: Sequence["Block"]


@dataclass(frozen=True)
class Details:
    """Blocks the reader may unfold."""

    kind: ClassVar[str] = "details"
    summary: str
    blocks: Sequence["Block"]
    opened: bool = False


Block = TableBlock | Paragraph | Picture | Grid | Frames | Details


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading and an anchor."""

    name: str
    heading: str
    blocks: Sequence[Block]


def columns(headings: Sequence[str], texts: Collection[str]) -> list[TableColumn]:
    """The columns of a table; those in `texts` hold words and not numbers."""
    return [TableColumn(heading, numeric=heading not in texts) for heading in headings]


def trusted(drawing: str) -> Markup:
    """A drawing, whose texts are escaped already, for use in a template."""
    return Markup(drawing)  # noqa: S704


def wide_picture(chart: Chart, *, tall: float) -> Picture:
    """A chart in full width with a legend, drawn for wide and for narrow screens."""
    wide = draw_lines(chart, (WIDE, tall), name=f"{chart.name}-wide", keyed=True)
    narrow = draw_lines(chart, (NARROW, min(tall, _TALL_ON_NARROW)), name=f"{chart.name}-narrow", keyed=True)
    data = script_data(chart, keyed=True)
    return Picture(chart.title, trusted(wide), trusted(narrow), chart.reading, chart.seen, data)


def small_pictures(charts: Sequence[Chart | None]) -> list[Block]:
    """The charts there are, drawn once for all screens, without a legend; nothing where there are none."""
    pictures = [_small_picture(chart) for chart in charts if chart is not None]
    return [Grid(pictures)] if pictures else []


def map_panels(maps: ClassMaps, groups: Sequence[Group]) -> list[Block]:
    """A map per group in a row that wraps, with the slider and the scale, and how to read them."""
    pictures = [
        Picture(group.label, trusted(draw_map(maps, index, group.label)), data=map_data(maps, index), group=index)
        for index, group in enumerate(groups)
        if maps.shown.values[index][-1] is not None
    ]
    scale = trusted(draw_scale(signed=maps.signed))
    return [Frames(maps.shown.rounds, [Grid(pictures, panels=True, scale=scale)]), Paragraph(maps.reading)]


def _small_picture(chart: Chart) -> Picture:
    drawn = trusted(draw_lines(chart, _SMALL, name=chart.name, keyed=False))
    data = script_data(chart, keyed=False)
    return Picture(chart.title, drawn, None, chart.reading, chart.seen, data, chart.owner)
