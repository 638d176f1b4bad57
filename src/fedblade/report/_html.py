"""HTML pieces the sections of the page share: tables, figures, sections."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedblade.report._charts import NARROW, WIDE, Figure
from fedblade.report._data import embed
from fedblade.report._svg import escape, swatch


@dataclass(frozen=True)
class Column:
    """Heading of a table column; numbers are aligned to the right."""

    heading: str
    numeric: bool = True


def table(caption: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls inside its own box; cells are trusted markup, the first of a row heads it."""
    head = "".join(f'<th scope="col"{_align(c)}>{escape(c.heading)}</th>' for c in columns)
    body = "".join(f"<tr>{_cells(columns, row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def figure(picture: Figure) -> str:
    """The picture drawn for wide and for narrow screens, of which the style sheet shows one."""
    wide = picture.draw(WIDE, f"{picture.name}-wide")
    narrow = picture.draw(NARROW, f"{picture.name}-narrow")
    return (
        f'<figure><div class="wide">{wide}</div><div class="narrow">{narrow}</div>{_data(picture)}'
        f"{_caption(picture)}</figure>"
    )


def grid(pictures: Sequence[Figure]) -> str:
    """Small pictures side by side, each under its title; below each other on narrow screens."""
    drawn = "".join(map(_small, pictures))
    return f'<div class="grid">{drawn}</div>' if pictures else ""


def frames(rounds: Sequence[int], content: str) -> str:
    """Pictures that all show the same round, with a slider that chooses it where there are several."""
    slider = f'<input type="range" min="0" max="{len(rounds) - 1}" value="{len(rounds) - 1}" aria-label="Round">'
    picker = f'<p class="pick"><span>Round <output>{rounds[-1]}</output></span>{slider if len(rounds) > 1 else ""}</p>'
    return f'<div class="frames">{embed(list(rounds))}{picker}{content}</div>'


def section(name: str, heading: str, *content: str) -> str:
    """A section with an anchor."""
    body = "".join(content)
    return f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">{heading}</h2>{body}</section>'


def details(summary: str, content: str, *, opened: bool = False) -> str:
    """A part the reader may unfold."""
    return f"<details{' open' if opened else ''}><summary>{escape(summary)}</summary>{content}</details>"


def paragraph(string: str, kind: str = "note") -> str:
    """A paragraph of plain text."""
    return f'<p class="{kind}">{escape(string)}</p>'


def name_cell(index: int, label: str) -> str:
    """A group's label after a sample of its line."""
    return f'<span class="name">{swatch(index)}<span>{escape(label)}</span></span>'


def _small(picture: Figure) -> str:
    title = paragraph(picture.title, "figure-title")
    owner = "" if picture.owner is None else f' data-g="{picture.owner}"'
    drawn = picture.draw(WIDE, picture.name)
    return f"<figure{owner}>{title}{drawn}{_data(picture)}{_caption(picture)}</figure>"


def _data(picture: Figure) -> str:
    return "" if picture.data is None else embed(picture.data)


def _caption(picture: Figure) -> str:
    seen = f' <span class="seen">{escape(picture.seen)}</span>' if picture.seen else ""
    return f"<figcaption>{escape(picture.reading)}{seen}</figcaption>" if picture.reading or seen else ""


def _cells(columns: Sequence[Column], row: Sequence[str]) -> str:
    first, *rest = zip(columns, row, strict=True)
    return f'<th scope="row">{first[1]}</th>' + "".join(f"<td{_align(c)}>{cell}</td>" for c, cell in rest)


def _align(column: Column) -> str:
    return ' class="n"' if column.numeric else ""
