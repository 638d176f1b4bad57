"""The comparison of runs as Markdown, CSV and LaTeX."""

import csv
import dataclasses
import io
from collections.abc import Callable, Sequence

from fedblade import protocols
from fedblade.results._captions import measured_on
from fedblade.results._compare import ComparisonRow
from fedblade.results._last_rounds import last_rounds

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "α": r"$\alpha$", "†": r"\dag{}", "−": "$-$",
}  # fmt: skip
_MEGABYTE = 1e6
_NOTE = "† after calibration at the end of the run"

Marker = Callable[[str, int | None], str]


def markdown(rows: Sequence[ComparisonRow]) -> str:
    """A Markdown table: best bold, second underlined."""
    header, body = _cells(rows, _in_markdown, lambda text: text.replace("|", r"\|"))
    lines = [header, ["---", *("---:" for _ in header[1:])], *body]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{table}\n\n*{_caption(rows)}*\n"


def latex(rows: Sequence[ComparisonRow]) -> str:
    """A LaTeX table for the package booktabs: best bold, second underlined."""
    header, body = _cells(rows, _in_latex, _escape)
    lines = [
        r"\begin{table}",
        rf"\caption{{{_escape(_caption(rows))}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"\toprule",
        " & ".join(header) + r" \\",
        r"\midrule",
        *(" & ".join(line) + r" \\" for line in body),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def comma_separated(rows: Sequence[ComparisonRow]) -> str:
    """A CSV file with every number of the comparison in full; numbers per seed share a cell, parted by spaces."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in dataclasses.fields(ComparisonRow))
    for row in rows:
        entries = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
        writer.writerow(
            map(_plain, (entries | {"rounds_to": row.rounds_to_seeds_text, "flags": "; ".join(row.flags)}).values())
        )
    return text.getvalue()


def _cells(
    rows: Sequence[ComparisonRow], mark: Marker, escape: Callable[[str], str]
) -> tuple[list[str], list[list[str]]]:
    own = any(row.own_mean is not None for row in rows)
    last = last_rounds(count for row in rows for count in row.evaluations)
    header = ["method", "seeds", f"{last}, %", "final round, %", *(["own models, %"] if own else [])]
    header += [f"rounds to {rows[0].threshold:g} %", "seconds per round", "MB up per round", "MB down per round"]
    body = []
    for row in rows:
        dagger = "†" if row.calibrated else ""

        def shown(mean: float | None, std: float | None, rank: int | None = None) -> str:
            number = mark(_number(mean, 2), rank)
            return number + ("" if std is None else escape(f" ± {_number(std, 2)}"))

        cells = [escape(row.label), str(len(row.seeds))]
        cells.append(shown(row.ranked_mean, row.ranked_std, row.rank) + escape(dagger))
        cells.append(shown(row.final_mean, row.final_std, row.final_rank) + escape(dagger))
        cells += [shown(row.own_mean, row.own_std)] if own else []
        cells += [escape(row.rounds_to_text), _number(row.seconds_per_round, 2)]
        cells += [_megabytes(row.bytes_up_per_round), _megabytes(row.bytes_down_per_round)]
        body.append(cells)
    return [escape(each) for each in header], body


def _caption(rows: Sequence[ComparisonRow]) -> str:
    several = any(len(row.seeds) > 1 for row in rows)
    said = ["Test accuracy in percent" + (f", mean ± {protocols.DEVIATION}" if several else "")]
    own = [(row.label, row.tests_apart) for row in rows if row.own_mean is not None]
    said += [f"own models on {measured_on(own)}"] if own else []
    said += ["best bold, second underlined"] if any(row.rank for row in rows) else []
    return "; ".join((*said, *([_NOTE] if any(row.calibrated for row in rows) else []))) + "."


def _in_markdown(number: str, rank: int | None) -> str:
    return {1: f"**{number}**", 2: f"<u>{number}</u>"}.get(rank or 0, number)


def _in_latex(number: str, rank: int | None) -> str:
    return {1: rf"\textbf{{{number}}}", 2: rf"\underline{{{number}}}"}.get(rank or 0, number)


def _escape(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _number(value: float | None, decimals: int) -> str:
    return "–" if value is None else f"{value:.{decimals}f}"


def _megabytes(value: float | None) -> str:
    return _number(None if value is None else value / _MEGABYTE, 2)


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return " ".join("" if each is None else str(each) for each in value)
    return "" if value is None else value
