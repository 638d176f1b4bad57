"""HTML pieces the sections of the page share: tables, figures, notices, numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedblade.report._charts import NARROW, WIDE, Figure
from fedblade.report._svg import escape

MISSING = "–"


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
    wide = picture.draw(WIDE, f"{picture.name}-wide", False)
    narrow = picture.draw(NARROW, f"{picture.name}-narrow", False)
    return (
        f'<figure><div class="wide">{wide}</div><div class="narrow">{narrow}</div>'
        f"<figcaption>{escape(picture.reading)}</figcaption></figure>"
    )


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


def percent(value: float | None) -> str:
    """Two decimals, or a dash."""
    return MISSING if value is None else f"{value:.2f}"


def duration(seconds: float | None) -> str:
    """Seconds, with fewer decimals the more there are."""
    if seconds is None:
        return MISSING
    if seconds < 100:
        return f"{seconds:.3f}" if seconds < 1 else f"{seconds:.2f}"
    return f"{seconds:,.0f}"


def size(num_bytes: float | None) -> str:
    """Bytes in decimal units."""
    if num_bytes is None:
        return MISSING
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 999.5:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.3g} TB"


def listing(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else list(names))


def plural(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _cells(columns: Sequence[Column], row: Sequence[str]) -> str:
    first, *rest = zip(columns, row, strict=True)
    return f'<th scope="row">{first[1]}</th>' + "".join(f"<td{_align(c)}>{cell}</td>" for c, cell in rest)


def _align(column: Column) -> str:
    return ' class="n"' if column.numeric else ""
