"""Small SVG building blocks: elements, lines and text that reads well alone and inside the page.

Colours are plain attributes for a light background, so that a figure saved as a file needs no style sheet; every
element also carries a class through which the page's style sheet adapts it to light and dark.
"""

import html
import itertools
import re
from collections.abc import Iterable, Sequence

from fedblade.charts.palette import COLOURS, INK, MUTED

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
FONT_SIZE = 12
# Seven colours and five dash patterns: a pair of them repeats only after 35 lines.
DASHES = ("none", "7 3", "2 3", "10 3 2 3", "14 4")
CROWD_STYLE: dict[str, object] = {"stroke": MUTED, "stroke_dasharray": "1 3", "class_": "line crowd"}
"""The line of the median of many groups."""
_GLYPH = 0.56
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_safe(text: object) -> str:
    """The text with a replacement for every character that XML forbids."""
    return _FORBIDDEN.sub("\ufffd", str(text))


def escape(text: object) -> str:
    """Text safe in HTML and XML, also inside attributes."""
    return html.escape(xml_safe(text))


def tag(name: str, content: str = "", **attributes: object) -> str:
    """An element around trusted markup; `class_` and `stroke_width` name `class` and `stroke-width`."""
    pairs = (
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    opening = f"<{name}{''.join(pairs)}"
    return f"{opening}>{content}</{name}>" if content else f"{opening}/>"


def text(x: float, y: float, string: object, *, anchor: str = "start", strong: bool = False) -> str:
    """A line of escaped text in the muted or the main ink."""
    return tag(
        "text",
        escape(string),
        x=x,
        y=y,
        text_anchor=anchor,
        fill=INK if strong else MUTED,
        class_="ink" if strong else "muted",
    )


def upright_title(y: float, string: object) -> str:
    """The title of a vertical axis, centred at `y` on the left edge."""
    at = f"translate(13 {y:.1f}) rotate(-90)"
    return tag("text", escape(string), transform=at, text_anchor="middle", fill=MUTED, class_="muted")


def stride(count: int, cells: float) -> int:
    """How many of `count` cells share a label that is as wide as `cells` cells: 1, 2, 5, 10, 20, 50, ..."""
    steps = (factor * power for power in (1, 10, 100, 1_000, 10_000) for factor in (1, 2, 5))
    return next((step for step in steps if step >= cells), count)


def text_width(string: str) -> float:
    """Rough width of a string in pixels."""
    return len(string) * FONT_SIZE * _GLYPH


def shorten(string: str, width: float) -> str:
    """The string, cut with an ellipsis to fit `width` pixels."""
    room = max(2, int(width / (FONT_SIZE * _GLYPH)))
    return string if len(string) <= room else string[: room - 1] + "…"


def path(points: Iterable[tuple[float, float]], *, closed: bool = False) -> str:
    """Path data to a tenth of a pixel: the first point, then the step to every other point.

    Steps are shorter in print than points. They are taken between rounded points, so that errors do not add up.
    """
    rounded = [(round(10 * x), round(10 * y)) for x, y in points]
    steps = [(x - old_x, y - old_y) for (old_x, old_y), (x, y) in itertools.pairwise(rounded)]
    return f"M{_tenths(rounded[:1])}{'l' if steps else ''}{_tenths(steps)}{'z' if closed else ''}"


def cell_paths(levels: Sequence[int], columns: int) -> dict[int, str]:
    """Path data by level for cells of size 1, given row after row; cells of level 0 stay empty.

    Neighbours of one level in a row are one line as thick as a row, so that thousands of cells stay small.
    """
    paths: dict[int, list[str]] = {}
    for row in range(len(levels) // columns):
        line = levels[row * columns : (row + 1) * columns]
        column = 0
        while column < columns:
            level, start = line[column], column
            while column < columns and line[column] == level:
                column += 1
            if level:
                paths.setdefault(level, []).append(f"M{start} {row}.5h{column - start}")
    return {level: "".join(parts) for level, parts in sorted(paths.items())}


def line_style(index: int) -> dict[str, object]:
    """Colour, dash pattern and class of the line with this index."""
    dash = DASHES[index % len(DASHES)]
    return {
        "stroke": COLOURS[index % len(COLOURS)],
        "stroke_dasharray": None if dash == "none" else dash,
        "class_": f"line s{index % len(COLOURS)}",
    }


def swatch(index: int, *, crowd: bool = False) -> str:
    """The line of the legend, 30 x 10 pixels, for use beside a name; that of a crowd lies in a band."""
    band = tag("rect", width=30, height=10, fill=MUTED, fill_opacity=0.16, class_="crowd") if crowd else ""
    style = CROWD_STYLE if crowd else line_style(index)
    line = tag("line", "", x1=1, y1=5, x2=29, y2=5, stroke_width=2.5, **style)
    return tag("svg", band + line, class_="swatch", width=30, height=10, viewBox="0 0 30 10", aria_hidden="true")


def document(
    body: str, *, size: tuple[float, float], title: str, desc: str, name: str, alone: bool = False, **attributes: object
) -> str:
    """A complete picture with title and description; `alone` adds what a separate file needs."""
    width, height = size
    paper = tag("rect", width=width, height=height, fill="#ffffff") if alone else ""
    label = tag("title", escape(title), id=f"{name}-title") + tag("desc", escape(desc), id=f"{name}-desc")
    return tag(
        "svg",
        label + paper + body,
        xmlns="http://www.w3.org/2000/svg" if alone else None,
        class_="chart",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        font_family=FONT,
        font_size=FONT_SIZE,
        **attributes,
    )


def _tenths(pairs: Iterable[tuple[int, int]]) -> str:
    """Tenths as decimal numbers; before a minus sign no space is needed."""
    written = (f"{value / 10:g}" for pair in pairs for value in pair)
    return " ".join(written).replace(" -", "-")


def _attribute(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else escape(value)
