"""The blocks that the page is made of, as values; `templates/blocks.html` writes them."""

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from markupsafe import Markup

from fedblade.charts import Chart, ClassMaps
from fedblade.report._heatmap import draw_map, draw_scale, map_data
from fedblade.report._lines import MOST_SMALL_POINTS, draw_lines, script_data
from fedblade.results import Group, TableCell, TableColumn

WIDE, NARROW = 1100.0, 352.0
_LEAD = (560.0, 352.0)
_SMALL = (380.0, 236.0)
_TALL_ON_NARROW, _LEAD_ON_NARROW = 250.0, 212.0


@dataclass(frozen=True)
class Cell(TableCell):
    """A cell of a table on the page: a sample of the line of `group` may stand before its text.

    A column is sorted by the first number in the texts, or by `order` where that is given. A cell with a `file` is a
    link that saves its content.
    """

    group: int | None = None
    code: bool = False
    warning: bool = False
    order: float | None = None
    file: "SavedFile | None" = None


@dataclass(frozen=True)
class SavedFile:
    """A file that is part of the page: its name, and its content as the address of a link."""

    name: str
    address: str

    @classmethod
    def of(cls, name: str, content: str, kind: str) -> "SavedFile":
        """The file of this name; `kind` is its media type."""
        encoded = base64.b64encode(content.encode("utf-8", errors="replace")).decode("ascii")
        return cls(name, f"data:{kind};base64,{encoded}")


@dataclass(frozen=True)
class TableBlock:
    """A table that scrolls inside its box; the first cell of a row heads it. A `tall` table is as high as its rows."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[Cell]]
    tall: bool = True


@dataclass(frozen=True)
class Paragraph:
    """Plain text, with a command or a file to save at its end if there is one."""

    kind: ClassVar[str] = "paragraph"
    text: str
    style: str = "note"
    command: str = ""
    after: str = ""
    file: SavedFile | None = None


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
class Lead:
    """What a reader sees first: the main chart, if there is one, and the table beside it or below it."""

    kind: ClassVar[str] = "lead"
    picture: Picture | None
    table: TableBlock


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


Block = TableBlock | Paragraph | Picture | Lead | Grid | Frames | Details


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
    """A chart in full width, drawn for wide and for narrow screens."""
    return _two_drawings(chart, (WIDE, tall), min(tall, _TALL_ON_NARROW))


def lead_picture(chart: Chart) -> Picture:
    """A chart in a good half of the width, drawn for wide and for narrow screens."""
    return _two_drawings(chart, _LEAD, _LEAD_ON_NARROW)


def small_pictures(charts: Sequence[Chart]) -> list[Block]:
    """The charts, drawn once for all screens; nothing where there are none."""
    pictures = [_small_picture(chart) for chart in charts]
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


def _two_drawings(chart: Chart, size: tuple[float, float], narrow_height: float) -> Picture:
    wide = draw_lines(chart, size, name=f"{chart.name}-wide")
    narrow = draw_lines(chart, (NARROW, narrow_height), name=f"{chart.name}-narrow")
    return Picture(chart.title, trusted(wide), trusted(narrow), chart.reading, chart.seen, script_data(chart))


def _small_picture(chart: Chart) -> Picture:
    drawn = trusted(draw_lines(chart, _SMALL, name=chart.name, most=MOST_SMALL_POINTS))
    data = script_data(chart, most=MOST_SMALL_POINTS)
    return Picture(chart.title, drawn, None, chart.reading, chart.seen, data, chart.owner)
