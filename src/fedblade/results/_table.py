"""A table of text as a value, and how it is written as Markdown, LaTeX, plain text and CSV.

Terminal and page draw the same value.
"""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "α": r"$\alpha$", "†": r"\dag{}",
    "‡": r"\ddag{}", "−": "$-$",
    "–": "--", "<": "$<$",
}  # fmt: skip


@dataclass(frozen=True)
class TableColumn:
    """The heading of a column; numbers are set right, texts left."""

    heading: str
    numeric: bool = True


@dataclass(frozen=True)
class TableCell:
    """A text, and what follows it.

    `spread` is a deviation such as `± 0.31`, `mark` a sign that a note explains, `small` is small print for media that
    have room for it. `rank` 1 and 2 are the best and the second. `tags` stand below, each with whether it is a warning.
    """

    text: str
    spread: str = ""
    mark: str = ""
    small: str = ""
    rank: int | None = None
    tags: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True)
class Table:
    """Columns, rows of as many cells, and notes, which explain what the cells hold."""

    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[TableCell]]
    notes: Sequence[str] = ()

    @classmethod
    def of_texts(
        cls,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        numeric: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> "Table":
        """A table of plain texts; `numeric` are the headings whose columns are set right."""
        columns = [TableColumn(heading, heading in numeric) for heading in header]
        return cls(columns, [[TableCell(text) for text in row] for row in rows], notes)


def markdown_table(table: Table) -> str:
    """The lines of a Markdown table, without its notes: best bold, second underlined."""
    marks = {1: "**{}**", 2: "<u>{}</u>"}
    rule = ["---:" if column.numeric else "---" for column in table.columns]
    lines = [[_in_markdown(column.heading) for column in table.columns], rule]
    lines += [[_cell_text(cell, marks, _in_markdown) for cell in row] for row in table.rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def markdown_texts(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table of plain texts, without the end of its last line."""
    return markdown_table(Table.of_texts(header, rows)).removesuffix("\n")


def text_table(table: Table) -> str:
    """The lines of a table in plain text, columns side by side and notes below; the best number has a star."""
    lines = [[column.heading for column in table.columns]]
    lines += [[("* " if cell.rank == 1 else "") + _cell_text(cell, {}, str) for cell in row] for row in table.rows]
    widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
    drawn = [
        "  ".join(
            text.rjust(width) if column.numeric else text.ljust(width)
            for text, width, column in zip(line, widths, table.columns, strict=True)
        ).rstrip()
        for line in lines
    ]
    return "\n".join([*drawn, *table.notes])


def csv_text(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """The text of a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def latex_table(table: Table, caption: str) -> str:
    """A LaTeX table for the package booktabs: best bold, second underlined."""
    marks = {1: r"\textbf{{{}}}", 2: r"\underline{{{}}}"}
    body = [[_cell_text(cell, marks, _in_latex) for cell in row] for row in table.rows]
    lines = [
        r"\begin{table}",
        rf"\caption{{{_in_latex(caption)}}}",
        rf"\begin{{tabular}}{{{''.join('r' if column.numeric else 'l' for column in table.columns)}}}",
        r"\toprule",
        " & ".join(_in_latex(column.heading) for column in table.columns) + r" \\",
        r"\midrule",
        *(" & ".join(line) + r" \\" for line in body),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _cell_text(cell: TableCell, marks: dict[int, str], escape: Callable[[str], str]) -> str:
    """A cell as text in a markup: its text as its rank is marked, its spread and its mark."""
    text = marks.get(cell.rank or 0, "{}").format(escape(cell.text))
    return text + (escape(f" {cell.spread}") if cell.spread else "") + escape(cell.mark)


def _in_markdown(text: str) -> str:
    return text.replace("|", r"\|")


def _in_latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)
