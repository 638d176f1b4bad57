"""The rows of benchmarks as a table: for a terminal of 80 columns, in Markdown, and as JSON."""

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.benchmark import TableRow
from benchmarks.machine import hardware, versions

PlainRow = Mapping[str, Any]
"""A row as plain values, as `--json` prints it."""
_WIDTH = 80
_NAME, _CASE, _VALUE, _GOAL = 11, 34, 11, 12


def with_machine(rows: Sequence[TableRow]) -> list[PlainRow]:
    """Rows as plain values, with the machine and the versions that measured them."""
    facts = {"hardware": hardware(), "versions": versions()}
    return [row.as_dict() | facts for row in rows]


def as_json(rows: Sequence[PlainRow]) -> str:
    """A JSON list of objects."""
    return json.dumps(rows, indent=1, ensure_ascii=False)


def as_text(rows: Sequence[PlainRow]) -> str:
    """A table, then what every benchmark ran, the medians, and why cases were skipped."""
    lines = [_line("benchmark", "case", "measured", "goal", "met"), "─" * _WIDTH]
    lines += [_line(row["name"], row["case"], _value(row), row["goal"] or "", _verdict(row)) for row in rows]
    for name in dict.fromkeys(row["name"] for row in rows):
        lines += ["", name, *_explained([row for row in rows if row["name"] == name])]
    if rows:
        lines += ["", *_paragraph(machine_and_versions(rows[0]))]
    return "\n".join(lines)


def as_markdown(rows: Sequence[PlainRow]) -> str:
    """A Markdown table; the last column has the command that measures the row."""
    columns = ("benchmark", "case", "goal", "measured", "met", "how it came about", "command")
    cells = [
        (row["name"], row["case"], row["goal"] or "—", _value(row), _verdict(row) or "—", _details(row), _command(row))
        for row in rows
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, ("---",) * len(columns), *cells))


STYLES: Mapping[str, Callable[[Sequence[PlainRow]], str]] = {
    "text": as_text,
    "json": as_json,
    "markdown": as_markdown,
}


def machine_and_versions(row: PlainRow) -> str:
    """Machine and versions of a row in one sentence."""
    return f"{row['hardware']}; {', '.join(f'{name} {version}' for name, version in row['versions'].items())}"


def _value(row: PlainRow) -> str:
    """The measured value with its unit, short."""
    number, unit = row["value"], row["unit"]
    if number is None:
        return "skipped"
    if unit == "difference":
        return f"{number:.1e}"
    places = 2 if number < 10 else 1 if number < 100 else 0
    return f"{number:.{places}f}{'' if unit == '×' else ' '}{unit}"


def _verdict(row: PlainRow) -> str:
    """Whether the goal was met, in a word."""
    return {True: "yes", False: "no", None: ""}[row["met"]]


def _details(row: PlainRow) -> str:
    """Why a row was skipped, or its medians, repetitions and note."""
    if row["skipped"]:
        return f"skipped: {row['skipped']}"
    parts = [f"{name} {number:.4g}" for name, number in row["medians"].items()]
    if len(row["values"]) > 1:
        parts.append(f"{row['repetitions']} repetitions from {min(row['values']):.3g} to {max(row['values']):.3g}")
    return "; ".join([*parts, *([row["note"]] if row["note"] else [])])


def _explained(rows: Sequence[PlainRow]) -> list[str]:
    """What the cases of a benchmark ran, once where they agree; then details of the measured and skipped cases."""
    lines = [line for what in dict.fromkeys(row["what"] for row in rows) for line in _paragraph(f"  {what}")]
    for row in rows:
        if not row["skipped"] and _details(row):
            lines += _paragraph(f"  - {row['case']}: {_details(row)}", "    ")
    for reason in dict.fromkeys(row["skipped"] for row in rows if row["skipped"]):
        cases = "; ".join(row["case"] for row in rows if row["skipped"] == reason)
        lines += _paragraph(f"  - skipped: {reason} ({cases})", "    ")
    return lines


def _line(name: str, case: str, measured: str, goal: str, met: str) -> str:
    return f"{name:<{_NAME}}{case:<{_CASE}}{measured:>{_VALUE}}  {goal:<{_GOAL}}{met}".rstrip()


def _command(row: PlainRow) -> str:
    return f"`fedblade bench {row['name']}`"


def _paragraph(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=indent, drop_whitespace=True)
