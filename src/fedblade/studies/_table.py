"""A table of text, and how it is written as Markdown and as LaTeX. The command line prints the same table."""

from collections.abc import Sequence
from dataclasses import dataclass

_LATEX = {
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "±": r"$\pm$",
    "–": "--",
    "<": "$<$",
    "α": r"$\alpha$",
    "−": "$-$",
}


@dataclass(frozen=True)
class Table:
    """Headings and rows of text. `numbers` are the headings whose columns are set right."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[str]
    title: str = ""
    remarks: Sequence[str] = ()

    def markdown(self) -> str:
        """A heading, the remarks, then the table."""
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        remarks = [*(f"*{remark}.*" for remark in self.remarks), *([""] if self.remarks else [])]
        return "\n".join([f"# {self.title}", "", *remarks, *(f"| {' | '.join(line)} |" for line in lines)]) + "\n"

    def latex(self) -> str:
        """A table for the package booktabs; title and remarks are its caption."""
        lines = [
            r"\begin{table}",
            rf"\caption{{{_escape('. '.join((self.title, *self.remarks)))}}}",
            rf"\begin{{tabular}}{{{''.join('r' if heading in self.numbers else 'l' for heading in self.header)}}}",
            r"\toprule",
            _latex_row(self.header),
            r"\midrule",
            *map(_latex_row, self.rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"


def _latex_row(texts: Sequence[str]) -> str:
    return " & ".join(map(_escape, texts)) + r" \\"


def _escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
